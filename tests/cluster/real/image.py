"""Our image as the Dockerfile says, built without a container engine, and small ones out of a folder: OCI archives, which
containerd imports. Their registries are names that nothing answers for."""

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from tests.components import CACHE

BASE = "localhost/paddock-base:bookworm"
PACKAGES = "python3,python3-venv,python3-pip,ca-certificates,tini"
# How this machine reaches its package index: for the build's own steps alone, and in no layer.
OF_THE_MACHINE = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf")


def build_paddock(checkout: Path, names: Sequence[str], archive: Path) -> None:
    """One image by several names: an upgrade needs a second one, and what is in it does not matter."""
    _make_base()
    mounts = [f"--volume={file}:{file}:ro" for file in OF_THE_MACHINE if Path(file).exists()]
    _buildah(
        *("bud", "--isolation", "chroot", "--network", "host", "--layers", "--quiet", *mounts),
        *("--build-arg", f"BASE={BASE}", *(f"--tag={name}" for name in names), str(checkout)),
    )
    archive.unlink(missing_ok=True)
    _buildah("push", "--quiet", names[0], f"oci-archive:{archive}:{names[0]}")


def _make_base() -> None:
    if _buildah("images", "--quiet", BASE, check=False):
        return
    folder = CACHE / "buildah"
    folder.mkdir(parents=True, exist_ok=True)
    tar = folder / "base.tar"
    subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(tar)], check=True
    )
    container = _buildah("from", "scratch")
    _buildah("add", "--quiet", container, str(tar), "/")
    _buildah("commit", "--quiet", container, BASE)
    _buildah("rm", container)
    tar.unlink()


def _buildah(*arguments: str, check: bool = True) -> str:
    store = CACHE / "buildah"
    command = ["buildah", "--root", str(store / "root"), "--runroot", str(store / "run"), "--storage-driver", "overlay"]
    ran = subprocess.run([*command, *arguments], check=False, capture_output=True, text=True)
    if check and ran.returncode != 0:
        raise SystemExit(f"buildah {arguments[0]} failed: {ran.stderr[-3000:]}")
    return ran.stdout.strip()


def write_busybox(name: str, archive: Path, entrypoint: Sequence[str], folder: Path) -> None:
    """An image with nothing but busybox in it."""
    root = folder / "rootfs"
    (root / "bin").mkdir(parents=True, exist_ok=True)
    shutil.copy2("/bin/busybox", root / "bin" / "busybox")
    for program in ("sh", "sleep", "true"):
        link = root / "bin" / program
        if not link.is_symlink():
            link.symlink_to("busybox")
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(root, arcname=".")
    _write_archive(layer.getvalue(), name, archive, entrypoint)


def _write_archive(layer: bytes, name: str, archive: Path, entrypoint: Sequence[str]) -> None:
    configuration = _json(
        {
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine],
            "os": "linux",
            "config": {"Entrypoint": list(entrypoint), "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _described("application/vnd.oci.image.config.v1+json", configuration),
            "layers": [_described("application/vnd.oci.image.layer.v1.tar", layer)],
        }
    )
    annotations = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    described = _described("application/vnd.oci.image.manifest.v1+json", manifest) | {"annotations": annotations}
    files = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json({"schemaVersion": 2, "manifests": [described]}),
    }
    files |= {f"blobs/sha256/{_digest(blob).partition(':')[2]}": blob for blob in (configuration, manifest, layer)}
    with tarfile.open(archive, "w") as tar:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _described(media_type: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}
