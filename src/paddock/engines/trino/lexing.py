"""Just enough of Trino's lexer to know what is text, comment, name or neither."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from paddock.engines.engine import QueryRefused
from paddock.engines.trino.literals import literal

# In the order of Trino's own rules. What is opened and never closed is a token too: nothing inside it is ours.
_TOKENS = re.compile(
    r"""
      (?P<string>'[^']*(?:''[^']*)*(?:'|\Z))
    | (?P<name>"[^"]*(?:""[^"]*)*(?:"|\Z) | `[^`]*(?:``[^`]*)*(?:`|\Z))
    | (?P<comment>--[^\r\n]* | /\*.*?(?:\*/|\Z))
    | (?P<dollars>\$\$.*?(?:\$\$|\Z))
    | (?P<word>[^\W\d]\w*)
    | (?P<number>\d[\w.]*)
    | (?P<parameter>:[^\W\d]\w*)
    | (?P<space>\s+)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)

# What a query may begin with. The engine's own proof comes after: this closes the texts that are one thing inside
# parentheses and another outside, such as `ANALYZE t`, which is also a table called analyze.
QUERIES = ("select", "with", "values", "table")


class Token(NamedTuple):
    kind: str
    text: str
    depth: int


def tokens(sql: str) -> Iterator[Token]:
    depth = 0
    for match in _TOKENS.finditer(sql):
        text = match.group()
        if text == ")":
            depth -= 1
        yield Token(match.lastgroup or "other", text, depth)
        if text == "(":
            depth += 1


def words(sql: str) -> Iterator[Token]:
    """Without what has no meaning."""
    return (token for token in tokens(sql) if token.kind not in ("space", "comment"))


def one_query(sql: str) -> str:
    """The text without the semicolon that people end it with and parentheses around all of it, if it begins as a query
    does."""
    text = _unwrapped(sql.rstrip().removesuffix(";").rstrip())
    first = next((token for token in words(text) if token.text != "("), None)
    if first is None:
        raise QueryRefused("There is no query in the text.", code="empty_query", hint="Write a SELECT.")
    if first.kind != "word" or first.text.lower() not in QUERIES:
        raise QueryRefused(
            f"An export is one query; this text begins with {first.text[:40]!r}.",
            code="not_a_query",
            hint="Begin with SELECT, WITH, VALUES or TABLE.",
        )
    return text


def _unwrapped(text: str) -> str:
    """What is inside the parentheses around all of it: with them Trino takes the query for one inside another, whose
    ORDER BY it may drop. Spaces take their place, so that lines and columns stay the author's."""
    found = list(tokens(text))
    inner = [place for place, token in enumerate(found) if token.kind not in ("space", "comment")]
    while len(inner) > 2 and found[inner[0]].text == "(" and _closes(found, inner) == inner[-1]:
        for place in (inner.pop(0), inner.pop()):
            found[place] = found[place]._replace(text=" ")
    return "".join(token.text for token in found).rstrip()


def _closes(found: list[Token], inner: list[int]) -> int | None:
    """Where the first one's parenthesis closes."""
    depth = found[inner[0]].depth
    return next((place for place in inner[1:] if found[place].depth == depth), None)


def bounded(sql: str) -> bool:
    """Whether the query itself says how many rows it gives at most."""
    return any(token.depth == 0 and token.text.lower() in ("limit", "fetch") for token in words(sql))


def bind(sql: str, parameters: Mapping[str, Any]) -> str:
    """The statement with `:name` bound to its values. Trino binds them itself, by position: the values stand beside
    the text and never in it."""
    if not parameters:
        return sql
    used: list[str] = []
    parts: list[str] = []
    for token in tokens(sql):
        if token.kind != "parameter":
            parts.append(token.text)
            continue
        name = token.text[1:]
        if name not in parameters:
            raise QueryRefused(
                f"The query refers to :{name}, which has no value.",
                code="parameter_missing",
                hint=f"Give a value for {name}.",
            )
        used.append(name)
        # As wide as the name was: what Trino says of a column on this line stays true.
        parts.append("?".ljust(len(token.text)))
    if unused := sorted(set(parameters) - set(used)):
        raise QueryRefused(
            f"The query does not refer to :{unused[0]}, which has a value.",
            code="parameter_unused",
            hint="Names are written :name in the query, outside quotes and comments.",
        )
    values = ", ".join(literal(name, parameters[name]) for name in used)
    return f"EXECUTE IMMEDIATE {literal('sql', ''.join(parts))} USING {values}"


# Syntax errors in a bound statement are counted from here.
BOUND_COLUMNS = len("EXECUTE IMMEDIATE '")
