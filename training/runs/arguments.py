"""Arguments of the scripts."""

import argparse
import math
import re
import sys
from collections.abc import Callable

_OPTION = re.compile(r"--[A-Za-z][^\s=]*")


class ScriptParser(argparse.ArgumentParser):
    """Parser of a script, with the script's docstring as its help. It takes no abbreviated options, and names an
    unknown option even if a required one is missing.

    >>> parser = ScriptParser(__doc__)
    """

    def __init__(self, description: str | None = None):
        super().__init__(
            description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
        )

    def parse_known_args(self, args=None, namespace=None):
        # argparse itself would report a missing option first, also if it is there, but mistyped.
        words = [*(sys.argv[1:] if args is None else args)]
        options = words[: words.index("--")] if "--" in words else words
        found = [option[0] for option in map(_OPTION.match, options) if option]
        if unknown := [option for option in found if option not in self._option_string_actions]:
            self.error(f"unknown option {', '.join(unknown)}; `{self.prog} --help` lists the options")
        return super().parse_known_args(args, namespace)


def at_least(least: int) -> Callable[[str], int]:
    """Return the type of an option that is an integer of at least `least`.

    >>> parser.add_argument("--batch-size", type=at_least(1))
    """

    def integer(text: str) -> int:
        if (value := int(text)) < least:
            raise argparse.ArgumentTypeError(f"{text}; expected at least {least}")
        return value

    return integer


def random_seed(text: str) -> int:
    """Return the value of an option that is a seed, as its type. NumPy takes 32 bits, and a run adds small numbers,
    such as that of a stage.

    >>> parser.add_argument("--seeds", type=random_seed, nargs="+", default=[0], action=Distinct)
    """
    if not 0 <= (value := int(text)) < 1 << 31:
        raise argparse.ArgumentTypeError(f"{text}; expected 0 to {(1 << 31) - 1:,}")
    return value


def positive(text: str) -> float:
    """Return the value of an option that is a finite number above 0, as its type."""
    if not 0 < (value := float(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"{text}; expected a number above 0")
    return value


class Distinct(argparse.Action):
    """Action of an option with several values: a value that is given twice counts once.

    >>> parser.add_argument("--seeds", type=random_seed, nargs="+", default=[0], action=Distinct)
    """

    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, list(dict.fromkeys(values)))
