import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.installation import Installation, Postgres


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    folder = Path(tempfile.mkdtemp(prefix="paddock-test-"))
    folder.chmod(0o755)
    postgres = Postgres(folder)
    yield postgres
    postgres.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def installation(server: Postgres, tmp_path: Path) -> Iterator[Installation]:
    opened = Installation(tmp_path, server)
    yield opened
    opened.close()
