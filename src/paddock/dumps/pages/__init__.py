"""The pages of dumps."""
