"""Which tests go to one process: those of a file, and those of folders whose tests share a running Paddock.

A Paddock takes seconds to start and does a little all the time. For the folders here there is one in each run instead of
one in each process that comes by a file of them. None of them is long: the other processes have all the rest meanwhile.
"""

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

TOGETHER = {
    "tests/cli/": "the one of tests/cli",
    "tests/instances/cli/": "the one whose graph commands change",
    "tests/instances/sdk/": "the one with the sample's graph",
}


class SharedPaddocks(LoadFileScheduling):  # type: ignore[misc]  # xdist ships no types
    def _split_scope(self, nodeid: str) -> str:
        shared = (name for folder, name in TOGETHER.items() if nodeid.startswith(folder))
        return next(shared, super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: Any, log: Any) -> SharedPaddocks | None:
    """None: pytest was told to distribute otherwise."""
    return SharedPaddocks(config, log) if config.getvalue("dist") == "loadfile" else None
