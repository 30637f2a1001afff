"""Which tests belong to a part of Paddock: `python -m tests.parts exports` prints their paths, for `scripts/test exports`;
with `--on-kubernetes` those of their files alone that have a real API server.

To a part belong the folder of its name, the files in the folders of the frames that are named for it
(`web/test_dumps_pages.py`), and both again for each name that ALSO adds. A capability that follows this needs no line here.
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
FRAMES = ("api", "cli", "web")
# Further names that tests of a part go by.
ALSO: dict[str, tuple[str, ...]] = {
    "exports": ("mappings", "snapshots"),
    "instances": ("graphs",),
    "cluster": ("kubernetes",),
    "engines": ("trino",),
    "jobs": (
        *(
            "cancelling",
            "changes",
            "claiming",
            "events",
            "fencing",
            "figures",
            "groups",
            "plans",
            "properties",
            "reading",
        ),
        *("schedules", "sessions", "submitting", "timeouts", "upkeep", "webhook", "worker"),
    ),
}


def parts() -> list[str]:
    folders = {folder.name for folder in HERE.iterdir() if any(folder.rglob("test_*.py"))}
    return sorted(folders | {part for part, names in ALSO.items() if folders.intersection(names)})


def paths_of(part: str) -> list[Path]:
    """The paths that pytest is to run for this part; none where nobody knows it."""
    if part not in parts():
        return []
    names = (part, *ALSO.get(part, ()))
    folders = [HERE / name for name in names if (HERE / name).is_dir()]
    files = [file for frame in FRAMES if frame not in names for file in sorted((HERE / frame).rglob("test_*.py"))]
    return [*folders, *(file for file in files if _is_named_for(file, names))]


def _is_named_for(file: Path, names: tuple[str, ...]) -> bool:
    word = file.stem.split("_")[1]
    return any(word in (name, name.removesuffix("s")) for name in names)


def on_kubernetes(part: str) -> list[Path]:
    """Its files that use the API server of `tests.cluster`, by themselves or as fixtures of their folder."""
    files = [file for path in paths_of(part) for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    return [file for file in files if "from tests.cluster" in file.read_text("utf-8")]


def main(part: str, *options: str) -> int:
    if options:
        files = on_kubernetes(part)
        sys.stdout.write("".join(f"{file.relative_to(HERE.parent)}\n" for file in files))
        return 0 if files else 1
    paths = paths_of(part)
    if not paths:
        sys.stderr.write(f"There is no part {part!r}. The parts are {', '.join(parts())}.\n")
        return 1
    sys.stdout.write("".join(f"{path.relative_to(HERE.parent)}\n" for path in paths))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
