"""Arguments of the scripts."""

import argparse
import re
import sys

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


class Distinct(argparse.Action):
    """Action of an option with several values: a value that is given twice counts once.

    >>> parser.add_argument("--seeds", type=int, nargs="+", default=[0], action=Distinct)
    """

    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, list(dict.fromkeys(values)))
