"""`scripts/test exports`: what belongs to a part of Paddock."""

import pytest

from paddock.capability import BUILT_IN
from tests.parts import HERE, main, on_kubernetes, parts, paths_of


def names(part: str) -> set[str]:
    return {str(path.relative_to(HERE)) for path in paths_of(part)}


@pytest.mark.parametrize("capability", [target.split(".")[1] for target in BUILT_IN])
def test_every_capability_is_a_part(capability: str) -> None:
    assert capability in parts()


def test_to_a_capability_belong_its_folder_its_other_names_and_its_files_in_the_frames() -> None:
    assert {"exports", "mappings", "snapshots", "cli/test_exports.py", "web/test_mappings_pages.py"} <= names("exports")
    assert {"dumps", "cli/test_dump.py", "web/browser/test_dumps.py"} <= names("dumps")
    assert not names("exports") & names("dumps")


def test_every_path_is_there() -> None:
    assert [path for part in parts() for path in paths_of(part) if not path.exists()] == []


def test_a_real_api_server_is_built_for_the_parts_whose_tests_use_one() -> None:
    assert {"cluster", "ingest", "kubernetes", "web"} <= {part for part in parts() if on_kubernetes(part)}
    assert [part for part in ("dumps", "exports", "jobs", "maintenance") if on_kubernetes(part)] == []


def test_who_names_no_part_is_told_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("export") == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert "There is no part 'export'." in told.err
    assert "exports" in told.err
