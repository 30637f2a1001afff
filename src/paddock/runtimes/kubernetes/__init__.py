"""Instances as pods and steps as Jobs, on a cluster that others use too.

The database is the truth, and the cluster is made to follow it: nothing here holds state that could not be lost.

- fact: one thing the cluster says about one object of ours, unjudged.
- diagnosis: what the facts mean: a category, who can mend it, and what to do.
- main: the container that does the work; the others bring it its files or take away its results.
- doubt: a create was sent and nobody knows whether it was taken; its name is asked for before anything else is done.
"""
