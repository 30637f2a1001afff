"""Rows are counted as they pass, wherever the stream is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.dumps.postgres.counting import Counting
from paddock.dumps.postgres.names import from_sql, full, name_of

HEAD = "--\n-- Data for Name: it's; Type: TABLE DATA; Schema: public; Owner: me\n--\n\n"
TAIL = "\\.\n\n\n"
DUMP = (
    "--\n-- PostgreSQL database dump\n--\n\n\\restrict abc\n\nSET standard_conforming_strings = on;\n\n"
    "--\n-- Name: f(); Type: FUNCTION; Schema: public; Owner: o'brien\n--\n\n"
    "CREATE FUNCTION public.f() RETURNS void LANGUAGE sql AS $_$\nCOPY public.fake (a) FROM stdin;\n1\n\\.\n\n\n--\n-- $_$;\n\n"
    "COMMENT ON TABLE public.a IS '\n--\n\nCOPY public.fake (a) FROM stdin;\n1\n''\nCOPY public.fake (b) FROM stdin;\n';\n\n"
    + HEAD
    + "COPY public.a (x, y) FROM stdin;\n1\t\\N\n2\t\\\\.\n\n"
    + TAIL
    + HEAD
    + "COPY public.empty (x) FROM stdin;\n"
    + TAIL
    + HEAD
    + 'COPY other."Odd ""name"".x\nCOPY y (z" ("a)b", "c""d") FROM stdin;\n\n\n'
    + TAIL
    + HEAD
    + "COPY public.none  FROM stdin;\n\n"
    + TAIL
    + "--\n-- Name: i; Type: INDEX\n--\n\nCREATE INDEX i ON public.a USING btree (x) WHERE (y <> '$$'::text);\n\n"
    + HEAD
    + "COPY public.last (x) FROM stdin;\nnot ' closed, \" neither\n$$\n-- no comment\n"
    + TAIL
    + "--\n-- PostgreSQL database dump complete\n--\n\n\\unrestrict abc\n\n"
).encode()
COUNTS = {"a": 3, 'other."Odd ""name"".x\nCOPY y (z"': 2, "none": 1, "last": 3}


def counted(pieces: list[bytes]) -> dict[str, int]:
    counting = Counting()
    for piece in pieces:
        counting.feed(piece)
    assert counting.inside is None
    return counting.taken()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 11, 12, 13, 64, 100, len(DUMP)])
def test_in_pieces_of_any_size(size: int) -> None:
    assert counted([DUMP[at : at + size] for at in range(0, len(DUMP), size)]) == COUNTS


def test_cut_in_two_anywhere() -> None:
    for at in range(len(DUMP)):
        assert counted([DUMP[:at], DUMP[at:]]) == COUNTS


def test_what_was_taken_is_not_counted_again() -> None:
    counting = Counting()
    totals: dict[str, int] = {}
    for at in range(0, len(DUMP), 10):
        counting.feed(DUMP[at : at + 10])
        for table, rows in counting.taken().items():
            totals[table] = totals.get(table, 0) + rows
    assert totals == COUNTS


def test_rows_that_do_not_end_are_noticed() -> None:
    counting = Counting()
    counting.feed(b"\nCOPY public.a (x) FROM stdin;\n1\n2\n")
    assert counting.inside == "a"


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_name_is_the_same_from_sql(schema: str, table: str) -> None:
    assert from_sql(full(schema, table)) == name_of(schema, table)


@given(st.lists(st.tuples(st.text('a."', min_size=1), st.text('a."', min_size=1)), min_size=2, max_size=2, unique=True))
def test_two_tables_have_two_names(pair: list[tuple[str, str]]) -> None:
    assert name_of(*pair[0]) != name_of(*pair[1])
