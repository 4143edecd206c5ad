"""Mean and standard deviation of a result over several seeds, as text."""

import statistics
from collections.abc import Sequence


def spread(values: Sequence[float], form: str) -> str:
    """Format the mean with a format specification and, of several values, the standard deviation.

    >>> spread([0.5, 0.75], ".2f")
    '0.62 ± 0.18'
    """
    deviation = f" ± {statistics.stdev(values):{form}}" if len(values) > 1 else ""
    return f"{statistics.mean(values):{form}}{deviation}"
