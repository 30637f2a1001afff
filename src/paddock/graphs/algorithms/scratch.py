"""The scratch folder of an execution: how its steps hand the graph and the result on.

Nodes have numbers from 0: those of the first label, then those of the second, and so on, within each label in the
order of the database's offsets. `labels.json` tells the labels in that order with how many nodes each has; `source.npy`
and `target.npy` hold the numbers at both ends of each edge, `weight.npy` the weights if there are any. The answer is
`values.npy`, one value for each node, and `figures.json`.
"""

import json
from pathlib import Path

LABELS, SOURCE, TARGET, WEIGHT = "labels.json", "source.npy", "target.npy", "weight.npy"
VALUES, FIGURES = "values.npy", "figures.json"


def label_sizes(folder: Path) -> dict[str, int]:
    """Label -> how many nodes it has, in the order of their numbers."""
    return dict(json.loads((folder / LABELS).read_text()))
