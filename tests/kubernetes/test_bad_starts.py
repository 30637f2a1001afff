"""What `paddock serve` cannot run with on Kubernetes is a sentence that says what to do, and never a defect of ours."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from paddock import log, serve
from paddock.cli import app
from paddock.cli.errors import FAILED, USAGE
from tests.cluster.server import Cluster

SECRET = "pdk_" + "a" * 32
DEFECT = "This is a bug in Paddock"

Refuse = Callable[..., str]


def stop_before_long() -> asyncio.Event:
    """One that is not refused ends all the same, and the test with it."""
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(60, stop.set)
    return stop


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Refuse:
    """What the command says with these variables, and with this file of settings."""
    monkeypatch.setattr(log, "configure", lambda *_: None)  # the tests' own stays
    monkeypatch.setattr(serve, "_stop_on_signals", stop_before_long)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    def run(exit_code: int, file: str = "", **variables: str) -> str:
        (tmp_path / "paddock.toml").write_text(file)
        given = {"PADDOCK_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none", "PADDOCK_HOST": "127.0.0.1"}
        given |= {"PADDOCK_DATA": str(tmp_path), "KUBECONFIG": str(tmp_path / "none"), **variables}
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        capsys.readouterr()
        assert app.run(["serve", "--port", "0"]) == exit_code
        said = capsys.readouterr().err
        assert DEFECT not in said
        assert "Traceback" not in said
        return said

    return run


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"grace": SECRET}, "has no role: name it like grace.worker"),
        ({"grace.ops": SECRET, "grace.admin": SECRET[:-1] + "b"}, "holds two tokens for grace"),
    ],
)
def test_token_files_that_nobody_can_follow(
    refuse: Refuse, tmp_path: Path, files: dict[str, str], sentence: str
) -> None:
    folder = tmp_path / "tokens"
    folder.mkdir()
    for name, secret in files.items():
        (folder / name).write_text(secret)
    said = refuse(FAILED, PADDOCK_TOKENS_DIR=str(folder))
    assert sentence in said
    assert SECRET not in said


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("[runtime.kubernetes]\ntolerations = {key = 'a'}", "bad value at tolerations"),
        ("kubernetes_image = 'a b'", "kubernetes_image"),
    ],
)
def test_settings_of_the_wrong_shape(refuse: Refuse, file: str, sentence: str) -> None:
    assert sentence in refuse(USAGE, file, PADDOCK_RUNTIME="kubernetes")


KUBECONFIG = """
current-context: here
contexts: [{name: here, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
"""


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"PADDOCK_KUBERNETES_IMAGE": ""}, "needs PADDOCK_KUBERNETES_IMAGE"),
        ({"PADDOCK_KUBERNETES_CONTEXT": ""}, "neither a service account in"),
        ({"PADDOCK_KUBERNETES_CONTEXT": "there"}, "has no context 'there' (PADDOCK_KUBERNETES_CONTEXT): here."),
    ],
)
def test_a_cluster_that_cannot_be_found(
    refuse: Refuse, dsn: str, tmp_path: Path, variables: dict[str, str], sentence: str
) -> None:
    if variables.get("PADDOCK_KUBERNETES_CONTEXT"):
        (tmp_path / "config").write_text(KUBECONFIG)
        variables = {**variables, "KUBECONFIG": str(tmp_path / "config")}
    assert sentence in refuse(USAGE, **{**in_a_bucket(dsn), **variables})


def test_a_namespace_that_is_not_there(refuse: Refuse, dsn: str, cluster: Cluster) -> None:
    where = {"KUBECONFIG": str(cluster.kubeconfig), "PADDOCK_KUBERNETES_INSTANCE_NAMESPACE": "nowhere"}
    said = refuse(FAILED, **in_a_bucket(dsn), **where)
    assert "The namespace 'nowhere', in which instances run, is not there." in said
    assert "correct PADDOCK_KUBERNETES_INSTANCE_NAMESPACE" in said  # the hint


def test_what_is_no_refusal_stays_a_defect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async def break_down(_config: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(log, "configure", lambda *_: None)
    monkeypatch.setattr(serve, "serve", break_down)
    monkeypatch.setenv("PADDOCK_DATA", str(tmp_path))
    assert app.run(["serve", "--port", "0"]) == FAILED
    assert DEFECT in capsys.readouterr().err


def in_a_bucket(dsn: str) -> dict[str, str]:
    """Settings of a control plane that opens its runtime."""
    return {
        "PADDOCK_DATABASE_URL": dsn,
        "PADDOCK_RUNTIME": "kubernetes",
        "PADDOCK_KUBERNETES_IMAGE": "paddock.test/paddock:1",
        "PADDOCK_OBJECT_STORE": "s3://bucket",
    }
