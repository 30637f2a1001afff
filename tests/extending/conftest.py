"""Tests here declare capabilities of their own: what a process remembers of the declarations is forgotten around each."""

from collections.abc import Iterator

import pytest

from paddock import capability
from paddock.api import foreign, kinds_seen
from paddock.web import navigation, places

REMEMBERED = (
    capability._loaded,
    foreign.prefixes,
    kinds_seen.naming_kinds,
    kinds_seen.naming_labels,
    navigation.groups,
    places.places,
)


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> Iterator[None]:

    for each in REMEMBERED:
        each.cache_clear()
    yield
    for each in REMEMBERED:
        each.cache_clear()
