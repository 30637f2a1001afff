"""The schema cache: what tables and columns the engines have, for fast browsing and search.

- metadata job: a worker's reading of one engine, schema by schema, into pages of a draft
- page: the tables of one schema in a range of names, which takes the place of exactly that range
- refresh: one metadata job and the merge of its pages
- stale: older than `cache.metadata.ttl_hours`; nothing is deleted for its age
"""
