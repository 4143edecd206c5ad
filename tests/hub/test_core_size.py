"""The code that a stranger reads before trusting a checkpoint stays small: benchmarks/core_size.py counts it."""

import ast
import inspect
import sys

from helpers.paths import REPOSITORY

from modeling_roformer import RoFormerModel

sys.path.insert(0, str(REPOSITORY / "benchmarks"))
import core_size


def test_the_published_code_stays_small():
    files, statements, refusals = core_size.published()
    assert files <= 17 and statements <= 2427 and refusals <= 87


def test_a_call_stays_short():
    functions, files, statements = core_size.calls()["here"]
    assert functions <= 43 and files <= 8 and statements <= 290


def test_forward_stays_on_one_screen():
    body = ast.parse(inspect.cleandoc(inspect.getsource(RoFormerModel.forward))).body[0].body[1:]
    assert body[-1].end_lineno - body[0].lineno < 25
