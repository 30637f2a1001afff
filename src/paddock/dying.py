"""How a child process makes sure that it does not outlive its parent."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Called by the child at its start. SIGKILL when the thread that forked it ends; at once if that is over already:
    then nobody would ever send the signal."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)
