"""Results over several seeds, as text."""

import statistics
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table


def spread(values: Sequence[float], form: str) -> str:
    """Format the mean with a format specification and, of several values, the standard deviation.

    >>> spread([0.5, 0.75], ".2f")
    '0.62 ± 0.18'
    """
    deviation = f" ± {statistics.stdev(values):{form}}" if len(values) > 1 else ""
    return f"{statistics.mean(values):{form}}{deviation}"


def print_scores(runs: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    """Print a table of scores, with a row for each run, then mean and standard deviation of several.

    >>> print_scores({"seed 0": {"test": {"accuracy": 0.5}}, "seed 1": {"test": {"accuracy": 0.75}}})
    """
    rows = {
        run: {
            f"{split} {name}".replace("_", " "): value
            for split, scores in splits.items()
            for name, value in scores.items()
        }
        for run, splits in runs.items()
    }
    table = Table("")
    for name in next(iter(rows.values())):
        table.add_column(name, justify="right")
    for run, row in rows.items():
        table.add_row(run, *(f"{value:.3f}" for value in row.values()))
    if len(rows) > 1:
        table.add_section()
        table.add_row(
            "mean", *(spread(column, ".3f") for column in zip(*(row.values() for row in rows.values()), strict=True))
        )
    Console(markup=False).print(table)
