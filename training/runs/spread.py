"""Results over several seeds, as text."""

import statistics
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Column, Table

_MAX_COLUMNS = 4  # that fit into 80 characters


def spread(values: Sequence[float], form: str) -> str:
    """Format the mean with a format specification and, of several values, the standard deviation.

    >>> spread([0.5, 0.75], ".2f")
    '0.62 ± 0.18'
    """
    deviation = f" ± {statistics.stdev(values):{form}}" if len(values) > 1 else ""
    return f"{statistics.mean(values):{form}}{deviation}"


def print_scores(runs: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    """Print a table of scores, with a row for each run, then mean and standard deviation of several. Many scores are
    printed in a table for each split.

    >>> print_scores({"seed 0": {"test": {"accuracy": 0.5}}, "seed 1": {"test": {"accuracy": 0.75}}})
    """
    splits = next(iter(runs.values()))
    is_wide = sum(map(len, splits.values())) > _MAX_COLUMNS
    for group in [[split] for split in splits] if is_wide else [[*splits]]:
        names = {f"{split} {name}".replace("_", " "): (split, name) for split in group for name in splits[split]}
        rows = [[scores[split][name] for split, name in names.values()] for scores in runs.values()]
        table = Table("", *(Column(name, justify="right") for name in names))
        for run, row in zip(runs, rows, strict=True):
            table.add_row(run, *(f"{value:.3f}" for value in row))
        if len(rows) > 1:
            table.add_section()
            table.add_row("mean", *(spread(column, ".3f") for column in zip(*rows, strict=True)))
        Console(markup=False).print(table)
