"""What the graph engines cannot load, said when an instance is asked for and not by one that fails later."""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec

from paddock import declared_types as types
from paddock.api.errors import ApiError, invalid_field
from paddock.declared_types import Type
from paddock.exports.mapping import Definition, Edge, Node

# Wrapper types and the modules of their engines.
WRAPPERS = {"ladybug": "ladybug", "ryugraph": "ryugraph"}
DEFAULT_WRAPPER = "ladybug"

Problem = dict[str, str]


def installed_wrappers() -> list[str]:
    return [name for name, module in WRAPPERS.items() if find_spec(module) is not None]


def checked_wrapper(named: str | None) -> str:
    name = named or DEFAULT_WRAPPER
    there = installed_wrappers()
    if name not in there:
        known = f"There are {', '.join(there)}." if there else "None is installed."
        missing = f" '{name[:50]}' needs the extra '{name}'." if name in WRAPPERS else ""
        raise invalid_field("wrapper_type", f"{known}{missing}")
    return name


def check_loadable(definition: Definition) -> None:
    problems = list(_problems(definition))
    if problems:
        listed = "; ".join(f"{problem['field']}: {problem['message']}" for problem in problems[:5])
        raise ApiError(
            422,
            "not_loadable",
            f"The graph engine cannot load this version of the mapping: {listed}",
            hint="Make a new version of the mapping without it.",
            details={"fields": problems[:100]},
        )


def _problems(definition: Definition) -> Iterator[Problem]:
    names: dict[str, str] = {}
    sections: Sequence[tuple[str, Sequence[Node | Edge]]] = (("nodes", definition.nodes), ("edges", definition.edges))
    for section, entities in sections:
        for place, entity in enumerate(entities):
            at = f"{section}.{place}"
            yield from _name_problems(at, entity, names)
            yield from _type_problems(at, entity)


def _name_problems(at: str, entity: Node | Edge, names: dict[str, str]) -> Iterator[Problem]:
    field, name = ("label", entity.label) if isinstance(entity, Node) else ("type", entity.type)
    first = names.setdefault(name.lower(), f"{at}.{field}")
    if first != f"{at}.{field}":
        message = f"'{name}' stands at {first} already; in a graph labels and edge types share their names."
        yield {"field": f"{at}.{field}", "message": message}


def _type_problems(at: str, entity: Node | Edge) -> Iterator[Problem]:
    for place, declared in enumerate(entity.properties):
        if _decimal_inside([types.parse(declared.type)], inside=False):
            yield {
                "field": f"{at}.properties.{place}.type",
                "message": "A DECIMAL inside a LIST or MAP cannot be loaded; use DOUBLE or STRING there.",
            }


def _decimal_inside(found: Sequence[Type], *, inside: bool) -> bool:
    return any(
        (type.name == "DECIMAL" and inside)
        or _decimal_inside(type.inner, inside=inside or type.name in ("LIST", "MAP"))
        for type in found
    )
