"""The commands of dumps."""
