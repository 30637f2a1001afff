"""The fenced core: every capability stands on it and it knows none of them."""
