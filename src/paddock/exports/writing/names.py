"""Column names as they stand in a file: each once, none empty."""

from collections.abc import Sequence


def file_names(columns: Sequence[str]) -> list[str]:
    """`a, a` become `a, a_1`. Case does not make a difference: most engines that read the file see none. The first to
    have a name keeps it, and no new name is one that another column already has."""
    wanted = [name or f"column_{position}" for position, name in enumerate(columns, 1)]
    given = {name.lower() for name in wanted}
    taken: set[str] = set()
    names = []
    for name in wanted:
        unique, number = name, 0
        while unique.lower() in taken or (number and unique.lower() in given):
            number += 1
            unique = f"{name}_{number}"
        taken.add(unique.lower())
        names.append(unique)
    return names
