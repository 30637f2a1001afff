"""The cyclic garbage collector, told what kind of process this is.

A control plane or worker loads a few hundred thousand objects that live as long as it does, and then makes and drops
thousands of short-lived ones for each batch, hardly any in cycles. By default each batch sets off collections
that walk what will never be garbage.
"""

import gc

YOUNG_OBJECTS = 50_000


def settle() -> None:
    """Once all is loaded: what is there now stays and is never walked again; look for cycles less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 50)
