"""Guestbooks: a job signs one, and everybody reads who did."""
