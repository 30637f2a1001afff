"""Where the API server is and who we are there: a pod's service account, or a kubeconfig as kubectl reads it.

Credentials change while we run: a mounted token is read anew for each call, and what an exec plugin gave is asked for again
when its time is over or the server no longer takes it. Nothing of them is ever part of a sentence.
"""

import asyncio
import base64
import json
import os
import shutil
import ssl
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from paddock.child_processes.spawning import ChildProcess, launched
from paddock.config import OLDER_PREFIX, PREFIX, ConfigError, known_settings

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
EXEC_SECONDS = 60.0
# More than this is no credential.
EXEC_BYTES = 1 << 20
# An exec plugin is asked again this long before what it gave is over.
MARGIN = timedelta(seconds=30)


class CredentialMissing(OSError):
    """What says who we are cannot be read at the moment."""


@dataclass
class Access:
    """`context` is the TLS side; `headers` is asked before each call."""

    server: str
    context: ssl.SSLContext | None
    # For people: which cluster this is, as they named it.
    called: str
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    plugin: "ExecPlugin | None" = None

    async def headers(self) -> dict[str, str]:
        token = self.token
        if self.token_file is not None:
            try:
                token = self.token_file.read_text("ascii").strip()
            except (OSError, ValueError) as problem:
                raise CredentialMissing(
                    f"The token in {self.token_file} cannot be read: {type(problem).__name__}."
                ) from None
        if self.plugin is not None:
            token = await self.plugin.token(self.context)
        return {} if token is None else {"Authorization": f"Bearer {token}"}

    def refused(self) -> None:
        """The server did not take who we are: what was kept is asked for again."""
        if self.plugin is not None:
            self.plugin.forget()


class ExecPlugin:
    """A command that prints an ExecCredential, as clouds have them."""

    def __init__(self, told: Mapping[str, Any], base: Path) -> None:
        command = str(told.get("command") or "")
        if not command:
            raise ConfigError("The kubeconfig names an exec plugin without a command.")
        self._command = str(base / command) if "/" in command and not Path(command).is_absolute() else command
        self._arguments = [str(one) for one in told.get("args") or ()]
        self._variables = {str(one["name"]): str(one["value"]) for one in told.get("env") or ()}
        self._version = str(told.get("apiVersion") or "client.authentication.k8s.io/v1")
        self._asking = asyncio.Lock()
        self._token: str | None = None
        self._until: datetime | None = None
        self._known = False

    def forget(self) -> None:
        self._known = False

    async def token(self, context: ssl.SSLContext | None) -> str | None:
        async with self._asking:
            over = self._until is not None and datetime.now(UTC) > self._until - MARGIN
            if not self._known or over:
                self._take(await self._ask(), context)
            return self._token

    async def _ask(self) -> dict[str, Any]:
        info = {"apiVersion": self._version, "kind": "ExecCredential", "spec": {"interactive": False}}
        environment = {**_without_settings(os.environ), **self._variables, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        program = shutil.which(self._command, path=environment.get("PATH"))
        try:
            if program is None:
                raise FileNotFoundError
            process = ChildProcess(
                launched([program, *self._arguments]), environment=environment, stdout=subprocess.PIPE
            )
        except OSError as problem:
            told = f"The exec plugin '{self._command}' of the kubeconfig cannot be started: {type(problem).__name__}."
            raise CredentialMissing(told) from None
        try:
            async with asyncio.timeout(EXEC_SECONDS):
                printed = bytearray()
                while len(printed) < EXEC_BYTES and (piece := await process.read(EXEC_BYTES)):
                    printed += piece
                status = json.loads(printed)["status"] if await process.wait() == 0 else None
        except (ValueError, KeyError, TypeError, TimeoutError):
            status = None
        finally:
            await process.end()
        if not isinstance(status, dict):
            raise CredentialMissing(f"The exec plugin '{self._command}' of the kubeconfig gave no credential.")
        return status

    def _take(self, status: dict[str, Any], context: ssl.SSLContext | None) -> None:
        self._token = status.get("token")
        until = status.get("expirationTimestamp")
        self._until = None if until is None else datetime.fromisoformat(str(until))
        certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
        if context is not None and certificate and key:
            _present(context, str(certificate).encode(), str(key).encode())
        self._known = True


def _without_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """A plugin needs what its cloud's tools read, whatever that is, but never our settings: the database's address and
    tokens are among them."""
    older = {variable for setting in known_settings().values() for variable in setting.older}
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith((PREFIX, OLDER_PREFIX, "PGPASS")) and name not in older
    }


def find_access(
    environ: Mapping[str, str], context: str | None = None, service_account: Path = SERVICE_ACCOUNT
) -> Access:
    """A kubeconfig that somebody named goes first, then the pod's own account, then the kubeconfig at its usual place."""
    named = environ.get("KUBECONFIG", "").strip()
    if (
        not named
        and context is None
        and (service_account / "token").exists()
        and environ.get("KUBERNETES_SERVICE_HOST")
    ):
        return _in_cluster(environ, service_account)
    usual = Path(environ.get("HOME", "/")) / ".kube" / "config"
    paths = [Path(path) for path in named.split(os.pathsep) if path] or [usual]
    if not any(path.exists() for path in paths):
        raise ConfigError(
            "PADDOCK_RUNTIME=kubernetes needs a cluster, and there is neither a service account in"
            f" {service_account} nor a kubeconfig at {', '.join(map(str, paths))}. Run it in a pod with a service account, or"
            " name a kubeconfig in KUBECONFIG."
        )
    return _from_kubeconfig(paths, context)


def _in_cluster(environ: Mapping[str, str], folder: Path) -> Access:
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    authority = _text(folder / "ca.crt", "the certificate authority of the cluster")
    return Access(server, _tls(authority), "the cluster it runs in", token_file=folder / "token")


def _from_kubeconfig(paths: list[Path], wanted: str | None) -> Access:
    current, tables = _read_kubeconfigs(paths)
    name = wanted or current
    if not name:
        raise ConfigError(
            f"The kubeconfig {_named(paths)} has no current-context: name one in PADDOCK_KUBERNETES_CONTEXT."
        )
    if name not in tables["contexts"]:
        known = ", ".join(sorted(tables["contexts"])) or "none"
        raise ConfigError(
            f"The kubeconfig {_named(paths)} has no context '{name}' (PADDOCK_KUBERNETES_CONTEXT): {known}."
        )
    entry, _ = tables["contexts"][name]
    cluster, cluster_base = _of(tables, "clusters", str(entry.get("cluster")), name)
    user, user_base = _of(tables, "users", str(entry.get("user")), name)
    server = str(cluster.get("server") or "").rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise ConfigError(f"The cluster of the context '{name}' names no server that begins with https://.")
    context = _tls_of(cluster, cluster_base) if server.startswith("https://") else None
    certificate, key = _data(user, "client-certificate", user_base), _data(user, "client-key", user_base)
    if context is not None and certificate and key:
        _present(context, certificate, key)
    token_file = user.get("tokenFile")
    return Access(
        server,
        context,
        f"the context '{name}'",
        token=user.get("token"),
        token_file=None if token_file is None else user_base / str(token_file),
        plugin=ExecPlugin(user["exec"], user_base) if isinstance(user.get("exec"), dict) else None,
    )


Tables = dict[str, dict[str, tuple[dict[str, Any], Path]]]


def _read_kubeconfigs(paths: list[Path]) -> tuple[str | None, Tables]:
    """Several files are one: whichever names a thing first has it. Paths in a file start at its folder."""
    current: str | None = None
    tables: Tables = {"clusters": {}, "users": {}, "contexts": {}}
    for path in paths:
        if not path.exists():
            continue
        try:
            read = yaml.safe_load(_text(path, "the kubeconfig"))
        except yaml.YAMLError:
            raise ConfigError(f"The kubeconfig {path} is not YAML.") from None
        if not isinstance(read, dict):
            raise ConfigError(f"The kubeconfig {path} holds no configuration.")
        current = current or read.get("current-context") or None
        for table, known in tables.items():
            for one in read.get(table) or ():
                if isinstance(one, dict) and isinstance(one.get(table[:-1]), dict):
                    known.setdefault(str(one.get("name")), (one[table[:-1]], path.parent))
    return current, tables


def _of(tables: Tables, table: str, name: str, context: str) -> tuple[dict[str, Any], Path]:
    if name not in tables[table]:
        raise ConfigError(
            f"The context '{context}' names the {table[:-1]} '{name}', which the kubeconfig does not have."
        )
    return tables[table][name]


def _tls_of(cluster: dict[str, Any], base: Path) -> ssl.SSLContext:
    authority = _data(cluster, "certificate-authority", base)
    context = _tls(None if authority is None else authority.decode())
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _tls(authority: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=authority)
    except ssl.SSLError:
        raise ConfigError("The certificate authority of the cluster is no certificate in PEM.") from None


def _present(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """The client certificate. OpenSSL reads it by a path only: a file in memory, so that no key comes to a disk."""
    handle = os.memfd_create("paddock-client-certificate")
    try:
        os.write(handle, certificate + b"\n" + key)
        context.load_cert_chain(f"/proc/self/fd/{handle}")
    except ssl.SSLError:
        raise ConfigError("The client certificate of the kubeconfig and its key do not fit together.") from None
    finally:
        os.close(handle)


def _data(entry: dict[str, Any], name: str, base: Path) -> bytes | None:
    """What stands in the file itself goes before the file it names."""
    if inside := entry.get(f"{name}-data"):
        try:
            return base64.b64decode(str(inside), validate=True)
        except ValueError:
            raise ConfigError(f"{name}-data in the kubeconfig is not base64.") from None
    path = entry.get(name)
    return None if not path else _text(base / str(path), f"the {name} of the kubeconfig").encode()


def _text(path: Path, what: str) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{path}, {what}, cannot be read: {type(problem).__name__}.") from None


def _named(paths: list[Path]) -> str:
    return os.pathsep.join(map(str, paths))
