"""The pages of maintenance."""
