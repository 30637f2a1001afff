"""What lies at a destination is anybody's: whatever it is, it ends in a sentence."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from paddock.config import load
from paddock.exports import delivering
from paddock.exports.model import Target
from paddock.exports.workshop import Workshop
from paddock.jobs.errors import PermanentRunnerError

FILE = {"name": "some.parquet", "rows": 1, "bytes": 1, "sha256": "0" * 64}


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    (tmp_path / "paddock.toml").write_text('[destinations.lake]\nurl = "lake"\n')
    return Workshop(load({}, tmp_path))


@pytest.mark.parametrize(
    "manifest",
    [
        {},
        [],
        {"job": None, "files": []},
        {"job": 7, "files": []},
        {"job": "a"},
        {"job": "a", "files": None},
        {"job": "a", "files": {"name": "x"}},
        {"job": "a", "files": ["x"]},
        {"job": "a", "files": [FILE, {"rows": 1}]},
        {"job": "a", "files": [{"name": ["x"]}]},
    ],
)
async def test_a_manifest_that_only_looks_like_ours_is_refused(
    workshop: Workshop, tmp_path: Path, manifest: Any
) -> None:
    folder = tmp_path / "lake" / "orders"
    folder.mkdir(parents=True)
    (folder / "_manifest.json").write_bytes(orjson.dumps(manifest))

    with pytest.raises(PermanentRunnerError) as refused:
        await delivering.check(Target(name="lake", prefix="orders", if_exists="replace"), workshop)
    assert refused.value.code == "destination_not_ours"


async def test_ours_may_be_replaced(workshop: Workshop, tmp_path: Path) -> None:
    folder = tmp_path / "lake" / "orders"
    folder.mkdir(parents=True)
    (folder / "_manifest.json").write_bytes(orjson.dumps({"job": "a", "files": [FILE]}))

    await delivering.check(Target(name="lake", prefix="orders", if_exists="replace"), workshop)
