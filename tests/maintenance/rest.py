"""A REST catalog on S3: both are SeaweedFS, in one process."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog import load_catalog

from paddock.engines.settings import Secret
from paddock.maintenance.catalog_settings import CatalogSettings
from tests.storage.servers import WEED_PORTS, aws_environ, new_place, started, wait_until

WAREHOUSE = "warehouse"
# Where tests keep what the catalog's secrets name.
CREDENTIAL, SECRET = "TEST_LAKE_CREDENTIAL", "TEST_LAKE_SECRET"
ENVIRONMENT = {CREDENTIAL: "test:testsecret", SECRET: "testsecret"}


@dataclass(frozen=True)
class RestLake:
    settings: CatalogSettings
    endpoint: str
    uri: str


@contextmanager
def rest_lake() -> Iterator[RestLake]:
    with new_place("rest", len(WEED_PORTS)) as place:
        command = [str(Path(sys.executable).parent / "weed"), "mini", f"-dir={place.folder}", "-ip=127.0.0.1"]
        command += ["-ip.bind=127.0.0.1", "-admin.ui=false", "-webdav=false"]
        command += [f"-{name}={port}" for name, port in zip(WEED_PORTS, place.ports, strict=True)]
        ports = dict(zip(WEED_PORTS, place.ports, strict=True))
        endpoint = f"http://127.0.0.1:{ports['s3.port']}"
        uri = f"http://127.0.0.1:{ports['s3.port.iceberg']}"
        environ = {**aws_environ(endpoint), "S3_BUCKET": "lake", "S3_TABLE_BUCKET": WAREHOUSE}
        lake = RestLake(_settings(uri, endpoint), endpoint, uri)
        with started(command, environ, place.folder) as process:
            wait_until(process, lambda: _answers(lake))
            yield lake


def _settings(uri: str, endpoint: str) -> CatalogSettings:
    return CatalogSettings(
        type="rest",
        properties={
            "uri": uri,
            "oauth2-server-uri": f"{uri}/v1/oauth/tokens",
            "warehouse": f"s3://{WAREHOUSE}/",
            "s3.endpoint": endpoint,
            "s3.access-key-id": "test",
            "s3.region": "us-east-1",
        },
        secrets={"credential": Secret(env=CREDENTIAL), "s3.secret-access-key": Secret(env=SECRET)},
    )


def _answers(lake: RestLake) -> bool:
    try:
        load_catalog(
            "lake", **lake.settings.properties, type="rest", credential=ENVIRONMENT[CREDENTIAL]
        ).list_namespaces()
    except Exception:  # whatever it says while it starts
        return False
    return True
