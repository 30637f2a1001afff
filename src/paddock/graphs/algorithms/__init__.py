"""Graph algorithms inside one instance: from the edges of the database to a property of its nodes.

An execution goes through children of the server, one after the other; each may be killed at any point, and all that is
left then is a scratch folder:

- `reading` opens the database read-only and writes the edges as arrays of node numbers. It runs no user's Cypher.
- `computing` loads numpy, scipy and networkit but no graph engine, and turns the arrays into one value for each node.
- `writing` copies the database, adds and fills the property in the copy, and checkpoints it.

Then the server takes the copy as its database. Until that moment queries see the old graph, afterwards the new one.

Words: an *algorithm* is an entry of `table`; an *execution* is one run of it; a *node number* is the place of a node in
one global numbering, in which each label has a range of its own (`arrays`); *figures* are what an algorithm tells about
the whole graph, such as how many communities there are.
"""
