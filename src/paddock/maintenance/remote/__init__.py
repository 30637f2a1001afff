"""Rewrites that another engine does: what it is told, what ends it, and what became of the table meanwhile."""
