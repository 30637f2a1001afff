"""Which bucket a store's URL means, where it is, and as whom it is asked: the same for every library that does.

obstore reads and writes; botocore asks S3 for what obstore cannot. An environment that is given to us goes before our
process's own, and the URL's options go before both. AWS's files in the home folder are read by neither.
"""

import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from paddock.config import ConfigError
from paddock.storage.store import check_prefix

# What an environment that is given to us may say. What it does not say, our process's own environment does.
VARIABLES: Mapping[str, Sequence[str]] = {
    "s3": [
        *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SKIP_SIGNATURE"),
        *("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"),
        *("AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_STS_ENDPOINT"),
        *("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
        *("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "AWS_REQUEST_PAYER"),
        *("AWS_SERVER_SIDE_ENCRYPTION", "AWS_SSE_KMS_KEY_ID", "AWS_DISABLE_BULK_DELETE"),
    ],
    "gs": [
        *("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY"),
        *("GOOGLE_BASE_URL", "GOOGLE_SKIP_SIGNATURE"),
    ],
    "az": [
        *(
            "AZURE_STORAGE_ACCOUNT_NAME",
            "AZURE_STORAGE_ACCOUNT_KEY",
            "AZURE_STORAGE_SAS_TOKEN",
            "AZURE_STORAGE_ENDPOINT",
        ),
        *("AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID", "AZURE_AUTHORITY_HOST"),
        *("AZURE_FEDERATED_TOKEN_FILE", "AZURE_MSI_ENDPOINT"),
    ],
}
ENDPOINTS: Mapping[str, Sequence[str]] = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
OPTIONS: Mapping[str, Set[str]] = {"s3": {"endpoint", "region"}, "gs": {"endpoint"}, "az": {"endpoint"}}


@dataclass(frozen=True)
class Bucket:
    scheme: str
    name: str
    # Before every key: empty, or with a slash at its end.
    prefix: str
    options: Mapping[str, str]
    environ: Mapping[str, str] | None

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.name}/{self.prefix}".rstrip("/")

    @property
    def endpoint(self) -> str:
        """Empty: the provider's own."""
        return self.options.get("endpoint") or self.said(*ENDPOINTS[self.scheme])

    @property
    def region(self) -> str:
        return self.options.get("region") or self.said(*REGIONS)

    @property
    def certificates(self) -> str:
        return self.said("AWS_CA_BUNDLE") if self.scheme == "s3" else ""

    def said(self, *names: str) -> str:
        given = os.environ if self.environ is None else self.environ
        return next((given[name] for name in names if given.get(name)), "")

    def config(self) -> dict[str, Any]:
        """In obstore's words."""
        environ = self.environ or {}
        said = {name: environ[name] for name in VARIABLES[self.scheme] if environ.get(name)}
        # The first name is the strongest: an endpoint in the environment gives way to the URL's.
        for option, (strongest, *others) in (("endpoint", ENDPOINTS[self.scheme]), ("region", REGIONS)):
            if option in self.options:
                said = {name: value for name, value in said.items() if name not in others}
                said[strongest] = self.options[option]
        return {name.lower(): value for name, value in said.items()}


def bucket_of(url: str, environ: Mapping[str, str] | None) -> Bucket:
    parts = urlsplit(url)
    if parts.scheme not in VARIABLES:
        raise ConfigError(f"'{parts.scheme}://' is no store that Paddock knows: use a folder, s3://, gs:// or az://.")
    if "@" in parts.netloc or not parts.netloc or parts.fragment:
        raise ConfigError(
            f"A store's URL is {parts.scheme}://bucket/prefix, without credentials: these come from the environment."
        )
    options = dict(parse_qsl(parts.query))
    known = OPTIONS[parts.scheme]
    if unknown := options.keys() - known:
        raise ConfigError(f"A store's URL takes {' and '.join(sorted(known))} after '?', not {min(unknown)!r}.")
    prefix = check_prefix(parts.path)
    return Bucket(parts.scheme, parts.netloc, f"{prefix}/" if prefix else "", options, environ)
