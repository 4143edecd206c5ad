"""Splits of a data set that share no value of a column."""

import datasets


def split_by(
    rows: datasets.Dataset, column: str, share: float, seed: int = 0
) -> tuple[datasets.Dataset, datasets.Dataset]:
    """Split rows at random into the larger part, and a part with a `share` of the different values of a column.

    All rows with the same value are in one part: otherwise a test would ask for what was learned by heart.

    >>> train, test = split_by(pairs, "source", 0.1)
    """
    values = datasets.Dataset.from_dict({"value": sorted(set(rows[column]))})
    asked = {*values.train_test_split(share, seed=seed)["test"]["value"]}
    is_asked = [value in asked for value in rows[column]]
    kept, taken = ([number for number, of in enumerate(is_asked) if of is wanted] for wanted in (False, True))
    return rows.select(kept), rows.select(taken)
