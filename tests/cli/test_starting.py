"""What `paddock up` says once it answers."""

import io
from pathlib import Path

import pytest

from paddock.up.commands import _announce
from paddock.up.running import Running

RUNNING = Running("http://127.0.0.1:8080", Path("/data"), "http://127.0.0.1:8080/sign-in#code=abc", 1.0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("output", "shows_link"), [(Terminal(), True), (io.StringIO(), False)])
def test_only_a_terminal_gets_the_link_that_signs_in(
    monkeypatch: pytest.MonkeyPatch, output: io.StringIO, shows_link: bool
) -> None:
    monkeypatch.setattr("sys.stdout", output)
    _announce(RUNNING)
    assert ("#code=abc" in output.getvalue()) is shows_link
    assert "`paddock tokens link --data /data` makes" in output.getvalue()
