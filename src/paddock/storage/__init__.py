"""Object stores, and how output becomes real in them."""
