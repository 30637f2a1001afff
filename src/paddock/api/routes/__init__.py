"""The public routes, one file per noun. A route only translates."""
