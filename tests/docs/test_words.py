"""What people read is plain English: phrases that readers stumbled over do not come back."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PHRASES = re.compile(
    r"\b(as what|as is usual|folders by|(?:address|region|token|engine) is none|make the same|anew"
    r"|told by|to look at it|ran again|let claim again|longer than nothing|shall be)\b"
    r"|>\s*(?:Leave it|At most|As is)\s*<",
    re.IGNORECASE,
)

# Comments first, so that a quotation mark in one begins no string.
SCRIPT_STRING = re.compile(r"""(?s:/\*.*?\*/)|//[^\n]*|(["'`])((?:\\.|(?!\1).)*)\1""")


def template_texts(path: Path) -> Iterator[str]:
    yield re.sub(r"\{#.*?#\}", "", path.read_text(), flags=re.DOTALL)


def code_texts(path: Path) -> Iterator[str]:
    """Strings with a space in them, and docstrings only where they are the help of a command."""
    tree = ast.parse(path.read_text())
    is_command = "commands" in path.parts or "cli" in path.parts
    hidden = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            shown = is_command and isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
            first = node.body[0] if node.body else None
            if not shown and isinstance(first, ast.Expr):
                hidden.add(id(first.value))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in hidden:
            yield node.value


def script_texts(path: Path) -> Iterator[str]:
    """Strings with a space in them; what others wrote is not ours to read."""
    if "vendor" not in path.parts:
        yield from (text for _, text in SCRIPT_STRING.findall(path.read_text()) if " " in text)


def doc_texts(path: Path) -> Iterator[str]:
    yield path.read_text()


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("src/paddock/**/*.html", template_texts),
        ("src/paddock/**/*.py", code_texts),
        ("src/paddock/**/*.js", script_texts),
        ("docs/**/*.md", doc_texts),
        ("README.md", doc_texts),
    ],
    ids=["pages", "messages", "scripts", "documentation", "readme"],
)
def test_no_phrase_that_readers_stumbled_over(pattern: str, texts: Callable[[Path], Iterator[str]]) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]!r} in {' '.join(text[max(0, match.start() - 60) : match.end() + 40].split())}"
        for path in sorted(ROOT.glob(pattern))
        for text in texts(path)
        for match in PHRASES.finditer(text)
    ]
    assert found == []


def test_a_phrase_in_a_script_would_be_found(tmp_path: Path) -> None:
    script = tmp_path / "page.js"
    script.write_text("// It's no string.\n/* 'As is usual' */ const hint = `${n} rows, as is usual`, word = 'anew';\n")
    assert list(script_texts(script)) == ["${n} rows, as is usual"]
