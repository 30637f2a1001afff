"""How many random examples a test tries: all in `scripts/test --long`, a quarter of them in every other run.

A test that asks here is marked `examples`, so that the long run finds it.
"""

import os

LONG = "PADDOCK_TEST_LONG" in os.environ


def examples(many: int) -> int:
    return many if LONG else max(many // 4, 5)
