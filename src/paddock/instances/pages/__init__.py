"""The pages of instances."""
