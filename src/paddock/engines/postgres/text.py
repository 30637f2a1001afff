"""The text of a query as PostgreSQL's lexer sees it: enough to find named parameters and a closing semicolon.

It decides nothing about safety: whatever comes out of here is prepared alone by the server before it is used.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

# Quoted and commented stretches first. `standard_conforming_strings` is on (the session sets it); strings go on after
# a line break, E-strings with their escapes.
_TOKEN = re.compile(
    r"""
      (?P<comment> --[^\n\r]* )
    | (?P<block> /\* )
    | (?P<dollar> \$(?:[A-Za-z_\x80-\U0010ffff][\w\x80-\U0010ffff]*)?\$ )
    | (?P<quoted> [eE]'(?:[^'\\]|\\.|'')*'(?:\s*[\n\r]\s*'(?:[^'\\]|\\.|'')*')*
                | '(?:[^']|'')*'
                | "(?:[^"]|"")*" )
    | (?P<word> [A-Za-z_\x80-\U0010ffff][\w$\x80-\U0010ffff]* )
    | (?P<operator> ::|:= )
    | :(?P<name> [A-Za-z_][A-Za-z0-9_]* )
    | (?P<semicolon> ; )
    | (?P<space> \s+ )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    start: int
    end: int
    name: str | None = None


def tokens(sql: str) -> Iterator[Token]:
    position = 0
    while position < len(sql):
        found = _TOKEN.match(sql, position)
        assert found is not None  # `other` is any character
        kind, end = found.lastgroup or "other", found.end()
        if kind == "block":
            end = _comment_end(sql, end)
        elif kind == "dollar":
            closing = sql.find(found["dollar"], end)
            end = len(sql) if closing < 0 else closing + len(found["dollar"])
        yield Token(kind, position, end, found["name"])
        position = end


def _comment_end(sql: str, position: int) -> int:
    """Comments of this kind nest."""
    depth = 1
    for edge in _COMMENT_EDGE.finditer(sql, position):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(sql)


def without_semicolon(sql: str) -> str:
    """`SELECT 1;` is one query, but not inside parentheses. Anything after the semicolon stays, for the server to
    refuse."""
    closing: int | None = None
    for token in tokens(sql):
        if token.kind == "semicolon":
            closing = token.start if closing is None else closing
        elif closing is not None and token.kind not in ("space", "comment", "block"):
            return sql
    return sql if closing is None else sql[:closing]


def parameters_of(sql: str, names: Mapping[str, object]) -> Sequence[Token]:
    """Only those that have a value: `a[b:c]` is a slice, and stays one."""
    return [token for token in tokens(sql) if token.kind == "name" and token.name in names]


def replaced(sql: str, found: Sequence[Token], by: Mapping[str, str]) -> str:
    parts: list[str] = []
    position = 0
    for token in found:
        assert token.name is not None
        # Spaces: nothing may join what stands beside it into one word.
        parts += [sql[position : token.start], f" {by[token.name]} "]
        position = token.end
    return "".join([*parts, sql[position:]])


def place(sql: str, position: int) -> tuple[int, int]:
    """Line and column, from 1, of a position from 1."""
    before = sql[: position - 1]
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
