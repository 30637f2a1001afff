"""Instances: graph databases that people ask for, one process or pod each, made from a snapshot's files.

- instance: one row and what runs for it; its life is `waiting_for_snapshot`, `starting`, `running`, `stopping`, or `failed`.
- generation: one start of an instance, with a number, a name and a token of its own; writes that name another change nothing.
- use: what keeps a snapshot from being deleted while an instance needs its files.
- end: why a start failed or a process is gone, and what follows from it (`ends`).
- grant: the permission to read and query somebody else's instance.
"""
