"""Iceberg tables kept healthy, under a lock, and never a row or a tag lost.

catalog: where tables are named, as `[catalogs.X]` has it. action: one of the five things that can be done to a table. outcome:
what became of one action. look: reading a table's metadata, to say how it is. fence tag: `paddock-fence-{attempt}`, which every
commit of an attempt asserts, so that whoever lost the job can commit nothing. bin: files that become one.
"""
