"""A query reads what its engine's roots show, and nothing of Paddock's own, wherever that lies."""

from pathlib import Path

import pytest

from paddock.config import Config
from paddock.engines.engine import Query
from paddock.engines.registry import Engines
from paddock.jobs.errors import PermanentRunnerError


@pytest.mark.parametrize("folder", ["store", "scratch", "data"])
async def test_a_root_around_paddocks_own_folders_does_not_show_them(tmp_path: Path, folder: str) -> None:
    config = Config(
        data=tmp_path / "data",
        object_store=str(tmp_path / "store"),
        scratch=tmp_path / "scratch",
        engines={"local": {"type": "duckdb", "roots": [str(tmp_path)]}},
    )
    for name in ("store", "scratch", "data", "mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.csv").write_text("a\n1\n")
    engines = Engines.from_config(config)
    try:
        _, table = await engines["local"].preview(Query(f"SELECT * FROM '{tmp_path}/mine/a.csv'"), 5)
        assert table.num_rows == 1
        with pytest.raises(PermanentRunnerError, match="Permission denied"):
            await engines["local"].preview(Query(f"SELECT * FROM '{tmp_path}/{folder}/a.csv'"), 5)
    finally:
        await engines.close()
