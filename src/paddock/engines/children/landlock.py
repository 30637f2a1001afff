"""Linux Landlock by its three system calls: from here on this thread, and what it starts, reaches only the files that
are named. Needs no rights; what is open stays open.

Threads that run already are not held by it, so an engine starts its own threads afterwards.
"""

import ctypes
import os
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
GET_VERSION = 1
PATH_BENEATH = 1
PR_SET_NO_NEW_PRIVS = 38

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = (1 << bit for bit in range(6))
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (1 << bit for bit in range(6, 13))
REFER, TRUNCATE, IOCTL_DEV = (1 << bit for bit in range(13, 16))
# How many of these bits each version of the interface knows, from version 1 on.
FS_BITS = (13, 14, 15, 15, 16)
NET_SINCE, NET = 4, 0b11  # bind and connect of TCP
SCOPE_SINCE, SCOPE = 6, 0b11  # abstract sockets and signals of others

ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
READ = READ_FILE | READ_DIR
SPILL = READ | WRITE_FILE | TRUNCATE | MAKE_REG | MAKE_DIR | REMOVE_FILE | REMOVE_DIR


def version() -> int:
    """0: this kernel has no Landlock."""
    if sys.platform != "linux":
        return 0
    return max(0, int(_libc().syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(GET_VERSION))))


def restrict(rules: Sequence[tuple[Path, int]]) -> bool:
    """False: there is no Landlock here. What it has but refuses is an OSError."""
    abi = version()
    if abi == 0:
        return False
    handled = (1 << FS_BITS[min(abi, len(FS_BITS)) - 1]) - 1
    ruleset = _create(handled, NET if abi >= NET_SINCE else 0, SCOPE if abi >= SCOPE_SINCE else 0)
    try:
        for path, access in rules:
            _allow(ruleset, path, access & handled)
        _call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _call("syscall", RESTRICT_SELF, ruleset, ctypes.c_uint32(0))
    finally:
        os.close(ruleset)
    return True


def _create(files: int, net: int, scope: int) -> int:
    # A kernel that knows a shorter structure takes the longer one as long as the rest is zero.
    attributes = ctypes.create_string_buffer(struct.pack("<QQQ", files, net, scope), 24)
    return _call("syscall", CREATE_RULESET, attributes, ctypes.c_size_t(24), ctypes.c_uint32(0))


def _allow(ruleset: int, path: Path, access: int) -> None:
    opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not path.is_dir():
            access &= ON_FILES
        attributes = ctypes.create_string_buffer(struct.pack("<Qi", access, opened), 12)
        _call("syscall", ADD_RULE, ruleset, PATH_BENEATH, attributes, ctypes.c_uint32(0))
    finally:
        os.close(opened)


def _call(function: str, *arguments: object) -> int:
    result = int(getattr(_libc(), function)(*arguments))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return result


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
