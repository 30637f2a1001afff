"""Engines: what runs SQL. Each meets the rest of Paddock at Arrow record batches."""
