from pathlib import Path

import pytest

from paddock.maintenance.catalog_settings import CatalogSettings
from tests.maintenance.lake import settings_of
from tests.trino.server import trino as trino


@pytest.fixture
def lake(tmp_path: Path) -> CatalogSettings:
    return settings_of(tmp_path)
