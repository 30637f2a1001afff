"""Trino and Starburst: our own client, its types, and the way from its pages to Arrow."""
