"""A real Spark Thrift server with an Iceberg REST catalog: fetched once per machine into a cache outside the tree, by names and
versions, and never into the project's own environment. Missing: skipped, naming the command."""

import fcntl
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from paddock.engines.settings import SparkSettings
from tests.maintenance.rest import RestLake
from tests.ports import free_ports
from tests.storage.servers import started, wait_until

PYSPARK = "pyspark==4.1.*"
RUNTIME = ("iceberg-spark-runtime-4.1_2.13", "1.12.0")
STORES = ("iceberg-aws-bundle", "1.12.0")
START_SECONDS = 300
THRIFT_SERVER = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"


@dataclass(frozen=True)
class SparkHome:
    python: Path
    home: Path
    java: str
    jars: tuple[Path, ...]


@dataclass(frozen=True)
class SparkServer:
    port: int
    process: "subprocess.Popen[bytes]"

    def settings(self) -> SparkSettings:
        return SparkSettings(type="spark", url=f"thrift://127.0.0.1:{self.port}", user="lab")


def spark_home() -> SparkHome:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paddock-tests" / "spark-4.1"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        java = _java()
        jars = tuple(_jar(*each) for each in (RUNTIME, STORES))
        python = cache / "venv" / "bin" / "python"
        if not (cache / "ready").exists():
            shutil.rmtree(cache / "venv", ignore_errors=True)
            _run(sys.executable, "-m", "venv", str(cache / "venv"))
            _run(str(python), "-m", "pip", "install", "-q", PYSPARK)
            (cache / "ready").touch()
    home = next((cache / "venv" / "lib").glob("python*/site-packages/pyspark"))
    return SparkHome(python, home, java, jars)


def _java() -> str:
    """17: later ones fail with `getSubject is not supported`."""
    for folder in sorted(Path("/usr/lib/jvm").glob("*17*")):
        if (folder / "bin" / "java").exists():
            return str(folder)
    _missing("apt-get install openjdk-17-jre-headless")
    raise AssertionError("unreachable")


def _jar(name: str, version: str) -> Path:
    folder = Path(os.environ.get("MAVEN_REPO") or Path.home() / ".m2" / "repository")
    jar = folder / "org" / "apache" / "iceberg" / name / version / f"{name}-{version}.jar"
    if not jar.exists():
        artifact = f"-Dartifact=org.apache.iceberg:{name}:{version}"
        _run("mvn", "-B", "-ntp", "-q", "dependency:get", artifact, "-Dtransitive=false")
    return jar


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        _missing(" ".join(command))
        return
    if done.returncode != 0:
        _missing(f"{' '.join(command)} failed: {done.stdout[-300:]}{done.stderr[-300:]}")


def _missing(what: str) -> None:
    pytest.skip(f"SPARK IS NOT TESTED. It needs: {what}")


@contextmanager
def spark_server(folder: Path, lake: RestLake, secrets: tuple[str, str]) -> Iterator[SparkServer]:
    found = spark_home()
    [port] = free_ports(1)
    key, secret = secrets
    catalog = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "rest",
        ".uri": lake.uri,
        ".warehouse": lake.settings.properties["warehouse"],
        ".credential": f"{key}:{secret}",
        ".oauth2-server-uri": f"{lake.uri}/v1/oauth/tokens",
        ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        ".s3.endpoint": lake.endpoint,
        ".s3.access-key-id": key,
        ".s3.secret-access-key": secret,
        ".s3.path-style-access": "true",
        ".client.region": "us-east-1",
        ".cache-enabled": "false",
    }
    settings = {
        **{f"spark.sql.catalog.lake{name}": value for name, value in catalog.items()},
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:ms;create=true",
        "spark.hadoop.hive.server2.thrift.port": str(port),
        "spark.hadoop.hive.server2.thrift.bind.host": "127.0.0.1",
        "spark.hadoop.hive.server2.long.polling.timeout": "100ms",
    }
    command: Sequence[str] = [
        str(found.home / "bin" / "spark-submit"), "--master", "local[2]", "--driver-memory", "1g",
        "--driver-class-path", ":".join(map(str, found.jars)),
        *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
        "--class", THRIFT_SERVER, "spark-internal",
    ]  # fmt: skip
    environ = {
        "JAVA_HOME": found.java,
        "SPARK_HOME": str(found.home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(found.python),
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
    }
    with started(list(command), environ, folder) as process:
        wait_until(process, lambda: _answers(port), seconds=START_SECONDS)
        yield SparkServer(port, process)


def _answers(port: int) -> bool:
    with socket.socket() as asking:
        asking.settimeout(1)
        return asking.connect_ex(("127.0.0.1", port)) == 0


def frozen(process: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    """The server and what it runs in, for a test that lets it stand still."""
    own = psutil.Process(process.pid)
    return [own, *own.children(recursive=True)]
