"""Size of what a stranger reads: files beside a checkpoint, and one call of a masked language model.

    python benchmarks/core_size.py

The table counts the Python files, statements and refusals that `roformer push --with-code` publishes beside an encoder
and its tokenizer (a check that is called at n places counts n times), and the distinct functions of the package that
one call of `RoFormerForMaskedLM` with padding and labels enters, their files and their statements, beside those of
transformers' RoFormer and ModernBERT. Docstrings do not count as statements.
"""

import ast
import inspect
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType

import torch
from rich.console import Console
from rich.table import Table
from transformers.models.modernbert import configuration_modernbert, modeling_modernbert
from transformers.models.roformer import configuration_roformer, modeling_roformer

import modeling_roformer as ours
from modeling_roformer.hub.remote_code import files_with_code

SIZES = dict(vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)


def published() -> tuple[int, int, int]:
    """Return the number of Python files beside an encoder with its tokenizer, of their statements and refusals."""
    with tempfile.TemporaryDirectory() as folder:
        vocab = Path(folder, "words.txt")
        vocab.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(chr, range(0x4E00, 0x4E5F))]))
        ours.RoFormerForMaskedLM(ours.RoFormerConfig(**SIZES)).save_pretrained(folder)
        ours.RoFormerTokenizer(str(vocab)).save_pretrained(folder)
        files = [content for name, content in files_with_code(Path(folder)).items() if name.endswith(".py")]
    trees = [ast.parse(content) for content in files]
    return len(files), sum(map(statements, trees)), refusals(trees)


def refusals(trees: list[ast.Module]) -> int:
    """Return the number of places that raise an error: a function `check_…` counts at each call, or for each error
    that it raises if these are more."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    called = Counter(getattr(function, "attr", getattr(function, "id", None)) for function in calls)
    errors, number = {node for node in nodes if isinstance(node, ast.Raise)}, 0
    for check in nodes:
        if isinstance(check, ast.FunctionDef) and check.name.startswith("check_"):
            own = {node for node in ast.walk(check) if isinstance(node, ast.Raise)}
            number += max(len(own), called[check.name]) if own else 0
            errors -= own
    return number + len(errors)


def entered(model: torch.nn.Module, is_counted: Callable[[str], bool]) -> tuple[int, int, int]:
    """Return the functions that a call with padding and labels enters in files that count, their files and
    statements."""
    ids = torch.randint(5, 90, (2, 16), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, 10:] = 0
    codes: set[CodeType] = set()

    def watch(frame, event, argument):
        code = frame.f_code
        if event == "call" and is_counted(code.co_filename) and not code.co_name.startswith("<"):
            codes.add(code)

    with torch.no_grad():
        for watcher in (None, watch):  # the first call does what is done once
            sys.setprofile(watcher)
            try:
                model(ids, attention_mask=mask, labels=torch.where(mask.bool(), ids, -100))
            finally:
                sys.setprofile(None)
    functions = [ast.parse(textwrap.dedent(inspect.getsource(code))).body[0] for code in codes]
    return len(codes), len({code.co_filename for code in codes}), sum(map(statements, functions))


def statements(tree: ast.AST) -> int:
    """Return the number of statements in a file or a function, without docstrings."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node is not tree]
    docstrings = [node for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    return len(nodes) - len(docstrings)


def calls() -> dict[str, tuple[int, int, int]]:
    """Return `entered` of each model by name."""
    folder = str(Path(ours.__file__).parent)
    modern = configuration_modernbert.ModernBertConfig(
        **SIZES, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2
    )
    plain = configuration_roformer.RoFormerConfig(**SIZES)
    return {
        "here": entered(ours.RoFormerForMaskedLM(ours.RoFormerConfig(**SIZES)).eval(), lambda f: f.startswith(folder)),
        "transformers' RoFormer": entered(
            modeling_roformer.RoFormerForMaskedLM(plain).eval(), lambda f: f == modeling_roformer.__file__
        ),
        "ModernBERT": entered(
            modeling_modernbert.ModernBertForMaskedLM(modern).eval(), lambda f: f == modeling_modernbert.__file__
        ),
    }


if __name__ == "__main__":
    files, number, errors = published()
    title = f"Published beside an encoder: {files} files, {number:,} statements, {errors} refusals"
    table = Table("one masked-LM call", "functions", "files", "statements", title=title)
    for name, numbers in calls().items():
        table.add_row(name, *map(str, numbers))
    Console().print(table)
