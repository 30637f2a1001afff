"""The pages of background jobs."""
