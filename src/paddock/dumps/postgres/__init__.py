"""PostgreSQL: dumped from one exported snapshot, by pg_dump or by COPY."""
