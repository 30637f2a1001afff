"""PostgreSQL: the embedded server, migrations and the pool."""
