"""The configuration of the tests' Trino: catalogs, roles, rights, resource groups, spooling, passwords, TLS."""

import datetime
import hashlib
import ipaddress
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

BUCKET = "trino"
# Of the tables that others write too, by the same server's Iceberg REST catalog.
WAREHOUSE = "warehouse"
S3_KEY, S3_SECRET = "labkey", "labsecret"
PASSWORD = "correct horse"
# Base64, as Trino wants both.
JWT_KEY = "dGhpcyBpcyBhIGtleSBmb3IgdGhlIHRlc3RzIG9mIHRva2Vucw=="
SPOOLING_KEY = "jxTKysfCBuMZtFqUf8UJDQ1w9ez8rynEJsJqgJf66u0="


@dataclass(frozen=True)
class Ports:
    http: int
    https: int
    s3: int
    # Without it there is no catalog `lake`.
    lake: int | None = None


def write_configuration(folder: Path, home: Path, ports: Ports) -> None:
    etc = folder / "etc"
    (etc / "catalog").mkdir(parents=True, exist_ok=True)
    (folder / "warehouse").mkdir(exist_ok=True)
    _properties(etc / "config.properties", _server(folder, home, ports))
    _properties(etc / "log.properties", {"io.trino": "WARN", "org": "WARN"})
    for name, catalog in _catalogs(folder, ports).items():
        _properties(etc / "catalog" / f"{name}.properties", catalog)
    _properties(
        etc / "access-control.properties",
        {"access-control.name": "file", "security.config-file": folder / "etc" / "rules.json"},
    )
    (etc / "rules.json").write_text(json.dumps(RULES))
    _properties(
        etc / "resource-groups.properties",
        {
            "resource-groups.configuration-manager": "file",
            "resource-groups.config-file": folder / "etc" / "resource-groups.json",
        },
    )
    (etc / "resource-groups.json").write_text(json.dumps(RESOURCE_GROUPS))
    _properties(
        etc / "spooling-manager.properties",
        {
            "spooling-manager.name": "filesystem",
            "fs.s3.enabled": "true",
            "fs.location": f"s3://{BUCKET}/spooling/",
            "fs.segment.ttl": "1h",
            **_s3(ports),
        },
    )
    _properties(
        etc / "password-authenticator.properties",
        {"password-authenticator.name": "file", "file.password-file": etc / "password.db"},
    )
    (etc / "password.db").write_text("".join(f"{user}:{_hashed(PASSWORD)}\n" for user in ("lab", "admin")))
    (etc / "jwt.key").write_text(JWT_KEY)
    if not (etc / "server.pem").exists():
        write_certificate(etc / "server.pem", etc / "ca.pem")


def _properties(path: Path, values: dict[str, Any]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))


def _server(folder: Path, home: Path, ports: Ports) -> dict[str, Any]:
    return {
        "coordinator": "true",
        "node-scheduler.include-coordinator": "true",
        "http-server.http.port": ports.http,
        "http-server.https.enabled": "true",
        "http-server.https.port": ports.https,
        "http-server.https.keystore.path": folder / "etc" / "server.pem",
        "http-server.authentication.type": "PASSWORD,JWT",
        "http-server.authentication.jwt.key-file": folder / "etc" / "jwt.key",
        "http-server.authentication.allow-insecure-over-http": "true",
        "internal-communication.shared-secret": "only for tests",
        "discovery.uri": f"http://127.0.0.1:{ports.http}",
        "query.max-memory": "1GB",
        "query.max-memory-per-node": "512MB",
        "memory.heap-headroom-per-node": "256MB",
        "shutdown.grace-period": "1s",
        "plugin.dir": home / "plugin",
        "node.environment": "test",
        "node.id": "paddock-tests",
        "node.bind-ip": "127.0.0.1",
        "node.internal-address": "127.0.0.1",
        "protocol.spooling.enabled": "true",
        "protocol.spooling.shared-secret-key": SPOOLING_KEY,
        "protocol.spooling.retrieval-mode": "STORAGE",
    }


def _s3(ports: Ports) -> dict[str, Any]:
    return {
        "s3.endpoint": f"http://127.0.0.1:{ports.s3}",
        "s3.region": "us-east-1",
        "s3.path-style-access": "true",
        "s3.aws-access-key": S3_KEY,
        "s3.aws-secret-key": S3_SECRET,
    }


def _catalogs(folder: Path, ports: Ports) -> dict[str, dict[str, Any]]:
    local = {"fs.native-local.enabled": "true", "local.location": folder / "warehouse"}
    lake = {} if ports.lake is None else {"lake": _lake(ports)}
    hive = {"connector.name": "hive", "hive.metastore": "file", "hive.non-managed-table-writes-enabled": "true"}
    return {
        **lake,
        "tpch": {"connector.name": "tpch", "tpch.splits-per-node": "2"},
        "memory": {"connector.name": "memory"},
        "blackhole": {"connector.name": "blackhole"},
        "iceberg": {
            "connector.name": "iceberg",
            "iceberg.catalog.type": "TESTING_FILE_METASTORE",
            "hive.metastore.catalog.dir": "local:///iceberg",
            **local,
        },
        "hive": {**hive, "hive.metastore.catalog.dir": "local:///hive", "hive.security": "allow-all", **local},
        # Real roles: unknown or ungranted ones are refused.
        "hivesec": {**hive, "hive.metastore.catalog.dir": "local:///hivesec", "hive.security": "sql-standard", **local},
        "hive_s3": {
            **hive,
            "hive.metastore.catalog.dir": f"s3://{BUCKET}/hive",
            "hive.security": "allow-all",
            "fs.native-s3.enabled": "true",
            **_s3(ports),
        },
    }


def _lake(ports: Ports) -> dict[str, Any]:
    uri = f"http://127.0.0.1:{ports.lake}"
    return {
        "connector.name": "iceberg",
        "iceberg.catalog.type": "rest",
        "iceberg.rest-catalog.uri": uri,
        "iceberg.rest-catalog.warehouse": f"s3://{WAREHOUSE}/",
        "iceberg.rest-catalog.security": "OAUTH2",
        "iceberg.rest-catalog.oauth2.credential": f"{S3_KEY}:{S3_SECRET}",
        "iceberg.rest-catalog.oauth2.server-uri": f"{uri}/v1/oauth/tokens",
        "fs.native-s3.enabled": "true",
        **_s3(ports),
    }


RULES = {
    "catalogs": [{"user": "nobody", "allow": "none"}, {"allow": "all"}],
    "queries": [{"user": "admin", "allow": ["execute", "view", "kill"]}, {"allow": ["execute", "view"]}],
    "schemas": [{"user": "lab|admin|paddock", "owner": True}, {"owner": False}],
    "tables": [
        {
            "user": "lab|admin|paddock",
            "privileges": ["SELECT", "INSERT", "DELETE", "UPDATE", "OWNERSHIP", "GRANT_SELECT"],
        },
        {"user": "denied", "privileges": []},
        {"privileges": ["SELECT"]},
    ],
    "impersonation": [{"original_user": "admin", "new_user": ".*"}],
    "system_information": [{"user": "admin", "allow": ["read", "write"]}, {"allow": ["read"]}],
}


def _group(name: str, running: int, queued: int, *inside: dict[str, Any]) -> dict[str, Any]:
    limits = {"hardConcurrencyLimit": running, "maxQueued": queued, "softMemoryLimit": "90%"}
    return {"name": name, **limits, **({"subGroups": list(inside)} if inside else {})}


# Chosen by source and client tags: what our client says of itself decides where its queries wait.
RESOURCE_GROUPS = {
    "rootGroups": [
        _group("one", 1, 100),
        _group("full", 1, 1),
        _group("held", 50, 5000, _group("${SOURCE}", 1, 1000)),
        _group("exports", 12, 5000),
        _group("rest", 50, 5000),
    ],
    "selectors": [
        {"source": "one-at-a-time", "group": "one"},
        {"source": "full", "group": "full"},
        # One at a time for each source that is called so.
        {"source": "held-.*", "group": "held.${SOURCE}"},
        {"clientTags": ["graph-olap-export"], "group": "exports"},
        {"group": "rest"},
    ],
}


def _hashed(password: str) -> str:
    salt = os.urandom(16)
    digest = hashlib.pbkdf2_hmac("sha1", password.encode(), salt, 1000, 32)
    return f"1000:{salt.hex()}:{digest.hex()}"


def write_certificate(server: Path, authority: Path) -> None:
    """A key and a certificate for 127.0.0.1, signed by an authority that nobody knows."""
    ca_key, ca_name = ec.generate_private_key(ec.SECP256R1()), _name("paddock tests")
    ca = _certificate(ca_name, ca_key, ca_name, ca_key, x509.BasicConstraints(ca=True, path_length=0), None)
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))])
    certificate = _certificate(
        _name("127.0.0.1"), key, ca_name, ca_key, x509.BasicConstraints(ca=False, path_length=None), names
    )
    pem = serialization.Encoding.PEM
    authority.write_bytes(ca.public_bytes(pem))
    server.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(pem)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    constraints: x509.BasicConstraints,
    names: x509.SubjectAlternativeName | None,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(constraints, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if constraints.ca:
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        builder = builder.add_extension(usage, critical=True)
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    return builder.sign(issuer_key, hashes.SHA256())
