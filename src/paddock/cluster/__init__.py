"""The cluster for people: whose it is, what of ours runs there and what is wrong with it, and what it lets Paddock do.

- mismatch: the database and the cluster do not belong together; an admin *adopts* it.
- without a row: a pod that no instance names. Without a pod: an instance that names one which is not there.
- probe: a Job in the namespace of instances that says what it could reach.
"""
