"""PostgreSQL as a source: one query, proven by the server, read by COPY from one snapshot."""
