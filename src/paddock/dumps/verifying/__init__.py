"""Whether a file is the whole dump that it says it is.

A dump in SQL ends with a comment that tells the rows of each table and the digest over the parts before it; a zip has a
manifest. The file is loaded into a scratch database, or parsed, all of it and never all at once in memory, and what is
there is compared with what is told.
"""
