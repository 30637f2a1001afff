"""Exports: SQL to files, by plain exports and by mappings and snapshots.

- engine: what runs queries, named in `[engines.X]`. role: the name that a query runs under there.
- export: one query or table whose rows become files. manifest: the file that names them and is written last.
- destination: a place outside of the managed store that an export writes to, named in `[destinations.X]`.
- mapping: which query gives which nodes and edges; each change makes a new version of it.
- snapshot: the files of one version of a mapping, made together; it is ready when each of its parts is.
- part: the export of one definition of a mapping, which is one job of the snapshot's group.
- draft: a folder of one attempt, which no reader can find until its manifest is named by the end of the job.
"""
