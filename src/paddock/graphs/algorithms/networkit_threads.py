"""How many threads networkit takes and which chance; both are settings of the whole process."""

import networkit

from paddock.graphs.algorithms.running import Run


def prepare(run: Run) -> None:
    """With several threads a result may differ from run to run, whatever the seed."""
    networkit.engineering.setNumberOfThreads(run.threads)
    seed = run.parameters.get("seed")
    if seed is not None:
        networkit.engineering.setSeed(seed, False)
