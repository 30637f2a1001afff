"""Names in declarations are text, which no type checker follows: each leads to something."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import paddock
from paddock.capability import Capability, capabilities, load


def targets(capability: Capability) -> Iterator[str]:
    for value in capability:
        values = [value] if isinstance(value, str) else [*value.values()] if isinstance(value, Mapping) else value or ()
        yield from (one for one in values if isinstance(one, str) and one.startswith(f"{capability.package}."))
    yield from (command.target for command in capability.commands)


@pytest.mark.parametrize(
    "target", [pytest.param(target, id=target) for capability in capabilities() for target in targets(capability)]
)
def test_it_is_there(target: str) -> None:
    assert load(target) is not None


def test_no_page_may_import_a_route_module() -> None:
    """The contract of the layers names those that are called otherwise than `routes`, since it cannot match them."""
    root = Path(paddock.__file__).parent
    house = tomllib.loads((root.parents[1] / "pyproject.toml").read_text("utf-8"))
    contracts = house["tool"]["importlinter"]["contracts"]
    [pages] = [contract for contract in contracts if contract["id"] == "pages-and-routes"]
    files = [
        file.relative_to(root.parent).with_suffix("")
        for one in capabilities()
        for file in (root / one.name).rglob("*routes.py")
    ]
    modules = {".".join(file.parts) for file in files if (file.name, len(file.parts)) != ("routes", 3)}

    assert {"paddock.*.routes", *modules} <= {*pages["forbidden_modules"]}
    assert "paddock.*.pages" in pages["source_modules"]
