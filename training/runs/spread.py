"""Results over several seeds, as text."""

import statistics
from collections.abc import Sequence


def number_of_seeds(succeeded: int, failed: int) -> str:
    """Format how many runs have succeeded, and how many have failed, if any.

    >>> number_of_seeds(2, 1)
    '2, 1 failed'
    """
    return f"{succeeded}, {failed} failed" if failed else str(succeeded)


def spread(values: Sequence[float], form: str) -> str:
    """Format the mean with a format specification and, of several values, the standard deviation.

    >>> spread([0.5, 0.75], ".2f")
    '0.62 ± 0.18'
    """
    deviation = f" ± {statistics.stdev(values):{form}}" if len(values) > 1 else ""
    return f"{statistics.mean(values):{form}}{deviation}"
