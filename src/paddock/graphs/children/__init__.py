"""The processes that touch a database. Each imports one graph engine, because two in one process crash it."""
