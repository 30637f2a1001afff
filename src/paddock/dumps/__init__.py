"""Dumps: a whole database as one file, from one point in time, in slices that survive any kill.

- database: what may be dumped, named in `[dumps.databases.X]`.
- dump: one job and the file that it makes; its point in time is when the copy or the transaction of it began.
- copy: a file database as it was at that point, beside its source, from which the dump is written.
- slice: as much as one turn writes; the next goes on from its cursor, the place behind the last row that was written.
- part: what one slice wrote to the store; composing makes one file of all parts.
- verification: loading the file into a database of its own and counting its rows.
"""
