import hashlib
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from paddock.jobs.errors import TransientResourceError
from paddock.storage.scratch import Scratch
from tests.storage.disks import SMALL
from tests.storage.disks import small_disk as small_disk


def test_arrow_writes_to_it_and_the_checksum_is_the_files(scratch: Scratch) -> None:
    table = pa.table({"a": [*range(10_000)]})
    parquet, csv = scratch.new(".parquet"), scratch.new(".csv.gz")

    with pyarrow.parquet.ParquetWriter(pa.PythonFile(parquet, "w"), table.schema) as writer:
        writer.write_table(table)
    parquet.close()
    with pa.CompressedOutputStream(pa.PythonFile(csv, "w"), "gzip") as compressed:
        pyarrow.csv.write_csv(table, compressed)
    csv.close()

    for file in (parquet, csv):
        content = file.path.read_bytes()
        assert (file.tell(), file.sha256) == (len(content), hashlib.sha256(content).hexdigest())
        assert file.bytes == len(content)
    assert pyarrow.parquet.read_table(parquet.path) == table
    assert scratch.used == parquet.bytes + csv.bytes
    parquet.remove()
    csv.remove()
    csv.remove()
    assert (scratch.used, [*scratch.folder.iterdir()]) == (0, [])


def test_the_budget_is_shared_and_said_through_arrow(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, budget=1000)
    first, second = scratch.new(), scratch.new()
    first.write(b"x" * 800)
    pressed = [scratch.pressed]
    second.write(b"x")
    pressed.append(scratch.pressed)
    assert pressed == [False, True]

    with pytest.raises(TransientResourceError) as refused:
        pa.PythonFile(second, "w").write(b"x" * 200)
    assert refused.value.code == "disk_full"

    first.remove()
    second.write(b"x" * 900)
    second.remove()
    assert scratch.used == 0
    scratch.close()


@pytest.mark.parametrize("size", [SMALL // 2, 4 * SMALL])
def test_a_full_disk_is_said_and_what_is_there_can_be_removed(small_disk: Path, size: int) -> None:
    scratch = Scratch(small_disk, budget=1 << 30)
    file = scratch.new()

    def fill() -> None:
        for _ in range(4):
            file.write(b"x" * size)
        file.close()

    with pytest.raises(TransientResourceError) as refused:
        fill()
    assert refused.value.code == "disk_full"

    file.remove()
    again = scratch.new()
    again.write(b"x" * (SMALL // 2))
    again.close()
    assert again.path.stat().st_size == again.bytes
    scratch.close()
    assert [child.name for child in small_disk.iterdir()] == [".lock"]


HOLD = """
    import sys
    from pathlib import Path
    from paddock.storage.scratch import Scratch

    file = Scratch(Path(sys.argv[1]), budget=1000).new(".parquet")
    file.write(b"x" * 100)
    file.flush()
    print(file.path, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_process_left_goes_when_the_next_one_starts(tmp_path: Path) -> None:
    (tmp_path / "keep").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLD), str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        path = Path(child.stdout.readline().decode().strip())

        living = Scratch(tmp_path, budget=1000)
        mine = living.new()
        assert path.read_bytes() == b"x" * 100
        child.send_signal(signal.SIGKILL)

    assert path.exists()
    Scratch(tmp_path, budget=1000).close()

    assert not path.parent.exists()
    assert mine.path.exists()
    assert (tmp_path / "keep").exists()
    mine.remove()
    living.close()


def test_a_removed_file_takes_no_more_room(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, 1000)
    file = scratch.new(".x")
    file.write(b"abc")
    file.remove()

    with pytest.raises(ValueError, match="removed"):
        file.write(b"the end of a dropped writer")

    assert scratch.used == 0
