"""What a worker refuses to start with."""

import pytest
from pydantic import SecretStr

from paddock.config import Config, ConfigError
from paddock.work import work


@pytest.mark.parametrize("kinds", [None, ("export",)])
async def test_a_wrong_engine_stops_a_worker_at_its_start(kinds: tuple[str, ...] | None) -> None:
    config = Config(
        server="http://127.0.0.1:1",
        token=SecretStr("never-sent"),
        worker_kinds=kinds,
        engines={"shop": {"type": "postgres", "url": "postgresql://reader@db/shop", "colour": "red"}},
    )
    with pytest.raises(ConfigError, match=r"engines\.shop"):
        await work(config)
