"""A database filled by plain SQL: what is read here is rows, whoever wrote them."""

from collections.abc import AsyncIterator

import pytest

from paddock.db.pool import Database, open_database


@pytest.fixture
async def db(dsn: str) -> AsyncIterator[Database]:
    async with open_database(dsn) as database:
        yield database
