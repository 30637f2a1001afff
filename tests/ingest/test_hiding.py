"""The values of secrets are hidden also where nobody knows them, by what their pod tells of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.ingest.hiding import LEFT_OUT, hiding, hiding_by_sums, sums_of
from tests.examples import examples

TOKEN = "the-token-of-this-step"
VALUES = ["hush-hush", "hush-hush-and-more", "first line of it\nsecond line of it\n", "a", "grün:geheim"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("key=hush-hush", "key=***"),
        ("hush-hushhush-hush", "******"),
        ("hush-hush-and-more\nof it", "***\nof it"),
        ("  second line of it", "  ***"),
        ("a tap in grün:geheim", "a tap in ***"),
        ("hush-hus", "hush-hus"),
        ("hsuh-hush", "hsuh-hush"),
        ("", ""),
    ],
)
def test_what_is_known_by_its_sum_is_hidden_like_what_is_known(text: str, shown: str) -> None:
    assert hiding(VALUES)(text) == shown
    assert hiding_by_sums(sums_of(VALUES, TOKEN), TOKEN)(text) == shown


@pytest.mark.examples
@settings(max_examples=examples(200), deadline=None)
@given(
    values=st.lists(st.text("ab-\n", min_size=1, max_size=8), max_size=4),
    text=st.text("ab-\n", max_size=60),
)
def test_both_ways_hide_the_same(values: list[str], text: str) -> None:
    assert hiding_by_sums(sums_of(values, TOKEN), TOKEN)(text) == hiding(values)(text)


def test_what_is_told_of_a_value_says_nothing_without_the_token() -> None:
    told = sums_of(VALUES, TOKEN)
    assert b"hush" not in told
    assert hiding_by_sums(told, "another token")("hush-hush") == "hush-hush"
    assert told != sums_of(VALUES, "another token")


def test_where_nobody_was_told_nothing_is_shown() -> None:
    assert hiding_by_sums(None, TOKEN)("key=hush-hush") == LEFT_OUT
