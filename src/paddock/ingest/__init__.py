"""Ingest: records from any command, through hooks, into Parquet.

- source: where records come from, named in `[ingest.sources.X]`.
- run: one round of fetching from a source; at most one of a source is live.
- batch: the records that go through the pipeline together; `n` counts them within a run.
- ingester: the command that fetches. hook: a command that checks or enriches the records of a batch.
- session: where a source goes on; JSON of the ingester's own making. The committed one is where the next run starts.
- step: fetch, hooks or publish; each is a job, and what follows from it happens in the transaction that ends it.
"""
