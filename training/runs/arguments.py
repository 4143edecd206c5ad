"""Arguments of the scripts."""

import argparse


class Distinct(argparse.Action):
    """Action of an option with several values: a value that is given twice counts once.

    >>> parser.add_argument("--seeds", type=int, nargs="+", default=[0], action=Distinct)
    """

    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, list(dict.fromkeys(values)))
