"""Engines that run inside a fresh child process for each query: DuckDB and SQLite."""
