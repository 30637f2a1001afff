"""`paddock tables` and `paddock catalogs`."""
