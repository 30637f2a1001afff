"""Dumps of SQLite: a copy from one pinned read, rendered by SQLite itself, a chunk per statement."""
