"""What runs inside one instance: `python -m paddock.graphs`, told by one line of JSON what it is.

The server process is light and never loads a graph engine, because every known engine crashes its process in some way.
Whatever touches a database is a child that dies with the server:

- loader: makes the tables and copies the files of a snapshot into them. Runs once, before the instance is ready.
- engine: opens the database to read and runs the users' Cypher, inside a sandbox. Killed and started anew when it must be.
- reader: reads nodes and edges as arrays for algorithms. Runs none of the users' Cypher.
- writer: changes a copy of the database for an algorithm, which then takes the place of the one before.

Words: a *database* is one file in `db/{number}/`; `current` names the one that is asked; a *slot* is the place of one
running query in an engine child; a *restart* is a new engine child in place of one that died or was killed.
"""
