"""Record batches to files: Parquet, CSV, JSON Lines."""
