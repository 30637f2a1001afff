"""What `paddock up` prints: a terminal gets a link that signs in, and a file, which others may read, gets none."""

import io
import sys
from pathlib import Path

import pytest

from paddock.up.commands import _announce
from paddock.up.running import Running

LINK = "http://127.0.0.1:8090/sign-in#code=one-that-works-once"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def said(out: io.StringIO, monkeypatch: pytest.MonkeyPatch, sign_in: str | None = LINK) -> str:
    monkeypatch.setattr(sys, "stdout", out)
    _announce(Running("http://127.0.0.1:8090", Path("/srv/data"), sign_in, 2.0))
    return out.getvalue()


def test_a_terminal_gets_the_link_and_how_to_make_another(monkeypatch: pytest.MonkeyPatch) -> None:
    text = said(Terminal(), monkeypatch)
    assert f"  Dashboard   {LINK}\n" in text
    assert "works once, within five minutes; `paddock tokens link --data /srv/data` makes another" in text


def test_a_file_gets_the_way_to_make_one(monkeypatch: pytest.MonkeyPatch) -> None:
    text = said(io.StringIO(), monkeypatch)
    assert "code=" not in text
    assert "Dashboard   http://127.0.0.1:8090 (`paddock tokens link --data /srv/data` makes a link" in text


def test_without_a_dashboard_there_is_no_link(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Dashboard" not in said(Terminal(), monkeypatch, None)
