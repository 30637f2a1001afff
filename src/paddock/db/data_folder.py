"""The data folder of `paddock up` and of the embedded PostgreSQL in it. Imports little: `up` makes it before all else."""

import os
from pathlib import Path


def make_data_folder(path: Path) -> None:
    """With the folders above it that are missing: private, but where we are root postgres' account must be able to pass.
    An `OSError` names the one that cannot be made."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(0o700, exist_ok=True)
        if os.geteuid() == 0:
            folder.chmod(0o711)  # only what we have just made ourselves
