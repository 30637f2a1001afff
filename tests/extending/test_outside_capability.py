"""A package from outside brings a whole capability, and people find each part of it where they would look."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from paddock.client import Client
from tests.extending.installing import ROOT, install
from tests.processes.running import Up, clean_environment, data_folder, running_up

EXAMPLE = ROOT / "examples" / "guestbook"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    site = install(EXAMPLE, tmp_path_factory.mktemp("site"))
    return clean_environment(PYTHONPATH=str(site), PADDOCK_GUESTBOOK_GREETING="Good evening")


@pytest.fixture(scope="module")
def up(environment: dict[str, str]) -> Iterator[Up]:
    with data_folder() as data, running_up(data, "--port", "0", environment=environment) as running:
        yield running


@pytest.fixture(scope="module")
def client(up: Up) -> Iterator[Client]:
    with up.client() as client:
        yield client


@pytest.fixture(scope="module")
def signed(client: Client) -> dict[str, Any]:
    """A job of the package's kind, run by the worker and committed by its hook into the table of its migration."""
    job = client.submit("sign_guestbook", {"book": "summer", "guest": "Grace"})
    return client.wait(str(job["id"]), 60)


def paddock(up: Up, environment: dict[str, str], *arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "paddock.cli", *arguments],
        env=environment,
        cwd=up.data.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout


def page(up: Up, path: str) -> str:
    """As a browser sees it that signed in."""
    url = up.address["url"]
    with httpx2.Client(base_url=url, follow_redirects=True) as browser:
        browser.post("/sign-in", data={"token": up.token}, headers={"origin": url})
        answer = browser.get(path)
        assert answer.status_code == 200, answer.text
        return answer.text


def test_its_kind_runs_and_its_table_is_there(signed: dict[str, Any], client: Client) -> None:
    assert signed["status"] == "completed"
    [row] = client.request("GET", "/api/guestbook")["data"]
    assert (row["book"], row["guest"]) == ("summer", "Grace")


def test_its_page_is_in_the_navigation_and_shows_its_setting(up: Up, signed: dict[str, Any]) -> None:
    text = page(up, "/guestbook")
    assert 'aria-current="page" data-key="v"' in text
    assert "Grace signed summer." in text
    assert "Good evening" in text


def test_its_command_is_in_the_help_and_answers(up: Up, environment: dict[str, str], signed: dict[str, Any]) -> None:
    assert "Who signed which book." in paddock(up, environment, "--help")
    listed = json.loads(paddock(up, environment, "guestbook", "list", "-o", "json", "--data", str(up.data)))
    assert [row["guest"] for row in listed] == ["Grace"]


def test_its_setting_is_listed_with_its_source(up: Up, environment: dict[str, str]) -> None:
    shown = paddock(up, environment, "config", "show", "-o", "json")
    [setting] = [one for one in json.loads(shown) if one["name"] == "guestbook_greeting"]
    assert setting["source"] == "PADDOCK_GUESTBOOK_GREETING"


def test_its_schedule_is_made(client: Client) -> None:
    listed = client.request("GET", "/api/schedules")["data"]
    assert "tidy-guestbook" in {one["name"] for one in listed}


def test_its_grant_decides_who_may_use_what(up: Up, client: Client) -> None:
    body = {"name": "winter", "role": "analyst", "owner": "ada", "books": ["winter"]}
    made = client.request("POST", "/api/tokens", body=body)["data"]
    assert made["books"] == ["winter"]
    with Client(up.address["url"], made["token"]) as ada:
        ada.submit("sign_guestbook", {"book": "winter", "guest": "Ada"})
        with pytest.raises(Exception, match="may not use the book 'summer'"):
            ada.submit("sign_guestbook", {"book": "summer", "guest": "Ada"})


def test_the_documentation_shows_its_declaration() -> None:
    page = (ROOT / "docs" / "extending.md").read_text("utf-8")
    assert (EXAMPLE / "guestbook" / "capability.py").read_text("utf-8") in page
