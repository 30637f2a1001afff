"""Every `paddock` command that people read, in the documentation, on a page or in a sentence of ours, is one that there is.

A line after `$` is parsed as it stands. Elsewhere a command may be named without its arguments (`paddock why`), but what
is there of it must be right.
"""

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import jinja2
import pytest
from cyclopts import App, CycloptsError, MissingArgumentError

from paddock.cli.app import build
from paddock.cli.commands import sections

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEMPLATES = sorted((ROOT / "src" / "paddock").rglob("templates/**/*.html"))
SOURCES = sorted((ROOT / "src" / "paddock").rglob("*.py"))
NAMES = "|".join(command.name for section in sections() for command in section.commands)

TICKED = re.compile(r"`((?:scripts/)?paddock [^`]+)`")
# To the end of the line or to a gap before an explanation; or all of a bracket.
BARE = re.compile(rf"(?:^ *|(?<=: ))(paddock (?:{NAMES})\b.*?)(?=   |\n|$)", re.MULTILINE)
BRACKETED = re.compile(rf"\((paddock (?:{NAMES})\b[^)]*)\)")
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"<code[^>]*>(paddock [^<]+)</code>")
# What stands for a value that a page or a sentence fills in.
VALUE = "7"


@cache
def parser() -> App:
    return build()


def problem(words: list[str], *, whole: bool) -> str | None:
    """Why the command line refuses these words; None if it takes them."""
    try:
        parser().parse_args(words, print_error=False, exit_on_error=False)
    except MissingArgumentError as mistake:
        return str(mistake) if whole else None
    except CycloptsError as mistake:
        return str(mistake)
    return None


def commands(line: str) -> Iterator[list[str]]:
    """The words after `paddock` in each command of a shell's line."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, "#"
    words: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set("();<>|&"):
            yield from _own(words)
            words = []
        else:
            words.append(word)


def _own(words: list[str]) -> Iterator[list[str]]:
    for place, word in enumerate(words):
        if word in ("paddock", "scripts/paddock"):
            yield words[place + 1 :]
            return


def refused(text: str, *, whole: bool = False) -> list[str]:
    named = ([word for word in words if word not in ("…", "...")] for words in commands(text))
    return [f"{text}\n    {why.strip()}" for words in named if (why := problem(words, whole=whole))]


def named(text: str) -> list[str]:
    """Commands within sentences."""
    text = text.replace("\\\n", " ")
    rest = TICKED.sub("", text)
    return [*TICKED.findall(text), *BARE.findall(rest), *BRACKETED.findall(rest)]


def console(block: str) -> list[str]:
    """The lines that are typed."""
    whole = block.replace("\\\n", " ")
    return [line.lstrip()[2:] for line in whole.splitlines() if line.lstrip().startswith("$ ") and "paddock" in line]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_the_documentation_is_one(page: Path) -> None:
    text = page.read_text("utf-8")
    typed = [line for _, block in FENCE.findall(text) for line in console(block)]
    wrong = [why for line in typed for why in refused(line, whole=True)]
    wrong += [why for line in TICKED.findall(FENCE.sub("", text)) for why in refused(line)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_kills_processes_by_a_pattern(page: Path) -> None:
    """It would hit other people's, and other Paddocks, on the same machine."""
    assert not re.findall(r"\b(?:pkill|killall|pgrep)\b", page.read_text("utf-8"))


@pytest.mark.parametrize("page", TEMPLATES, ids=lambda page: "/".join(page.relative_to(ROOT / "src/paddock").parts))
def test_every_command_of_a_page_is_one(page: Path) -> None:
    wrong = [why for command in shown(page.read_text("utf-8")) for why in refused(command, whole=True)]
    assert not wrong, "\n".join(wrong)


def test_the_pages_of_every_capability_are_read() -> None:
    folders = {page.relative_to(ROOT / "src" / "paddock").parts[0] for page in TEMPLATES}
    assert folders >= {"background", "cluster", "dumps", "exports", "ingest", "instances", "maintenance", "web"}
    assert len(TEMPLATES) >= 70
    assert sum(len(list(shown(page.read_text("utf-8")))) for page in TEMPLATES) >= 25


def shown(template: str) -> Iterator[str]:
    """Commands in the text of a template, and in what it hands to its macros."""
    text = ""
    for _, kind, value in jinja2.Environment().lex(template):
        if kind == "string" and (command := str(ast.literal_eval(value))).startswith("paddock "):
            yield command.replace("%s", VALUE) + (VALUE if command.endswith(" ") else "")
        text += value if kind == "data" else VALUE if kind == "variable_begin" else ""
    yield from (command.replace("&lt;", "<") for command in CODE.findall(text))


def test_every_command_that_a_sentence_names_is_one() -> None:
    wrong = []
    for source in SOURCES:
        tree = ast.parse(source.read_text("utf-8"))
        commands = [command for text in texts(tree) for command in named(text)]
        commands += [shlex.join(["paddock", *words]) for words in built(tree)]
        wrong += [f"{source.name}: {why}" for command in commands for why in refused(command)]
    assert not wrong, "\n".join(wrong)


def texts(tree: ast.AST) -> Iterator[str]:
    """Every string, with something for each value that is filled in."""
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield _filled(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.value


def _filled(sentence: ast.JoinedStr) -> str:
    """A value right behind a word is more of it, or nothing: `link{_data(running)}`."""
    text = ""
    for part in sentence.values:
        if isinstance(part, ast.Constant):
            text += str(part.value)
        elif not text[-1:].isalnum():
            text += VALUE
    return text


def built(tree: ast.AST) -> Iterator[list[str]]:
    """What is made by `web.commands.cli`: the words that are known."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "cli":
            yield [
                str(word.value) if isinstance(word, ast.Constant) else VALUE
                for word in node.args[1:]
                if not isinstance(word, ast.Starred)
            ]


def test_a_command_that_there_is_not_would_be_found() -> None:
    assert refused("paddock schedules create nightly --kind probe --cron '30 2 * * *'")
    assert refused("paddock jobs nothing")
    assert refused("paddock jobs show", whole=True)
    assert not refused("paddock jobs show")
    assert not refused("cat query.sql | paddock export -f - --to out.csv &", whole=True)
    assert not refused("paddock mappings apply -f -", whole=True)
    assert not refused("paddock jobs submit probe --file - | paddock schedules create s probe --file -", whole=True)
    assert named("Stop it:\n  paddock dumps cancel 7   stops it\nor `paddock why 7` (paddock jobs list).") == [
        "paddock why 7",
        "paddock dumps cancel 7",
        "paddock jobs list",
    ]
