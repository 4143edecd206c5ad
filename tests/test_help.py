"""`help` of the package names what a user can do, and `help` of a head describes every argument."""

import inspect
import re
import types
from importlib import import_module
from pathlib import Path

import pytest

import modeling_roformer
from modeling_roformer import RoFormerModel, heads, nezha

HEADS = [name for name in modeling_roformer.__all__ if "For" in name.removeprefix("RoFormer") and "Auto" not in name]
HEADS.remove("RoFormerForConditionalGeneration")  # reads two texts: see test_seq2seq.py


def test_the_package_names_its_packages_for_conversion_the_hub_training_and_serving():
    lines = re.findall(r"^ +modeling_roformer\.(\w+) +\S", modeling_roformer.__doc__, re.MULTILINE)
    assert sorted(lines) == ["conversion", "hub", "serving", "training"]
    for name in lines:
        assert import_module(f"modeling_roformer.{name}").__doc__
    assert modeling_roformer.__doc__.index("import modeling_roformer") < 500


def entries(text):
    """Return the arguments that a docstring describes: name -> description."""
    section = re.search(r"^Args:\n(.*?)\n\n", inspect.cleandoc(text), re.DOTALL | re.MULTILINE)[1]
    found = re.findall(r"^ +([\w*, ]+): (.*(?:\n +(?![\w*, ]+: ).*)*)", section, re.MULTILINE)
    return {name.strip(): words for names, words in found for name in names.split(",")}


@pytest.mark.parametrize("head", HEADS)
def test_every_argument_is_described(head):
    """In the head's docstring, or in that of the bare model, to which it refers."""
    forward = getattr(modeling_roformer, head).forward
    parameters = inspect.signature(forward).parameters
    own, bare = entries(forward.__doc__), entries(RoFormerModel.forward.__doc__)
    assert list(parameters)[:5] == ["self", "input_ids", "attention_mask", "token_type_ids", "inputs_embeds"]
    assert "the other arguments of `RoFormerModel.forward`" in own["**kwargs"]
    described = {**bare, **own}
    for name, parameter in parameters.items():
        if name != "self":
            assert len(described["**kwargs" if parameter.kind is parameter.VAR_KEYWORD else name].split()) >= 2, name
    assert "output_hidden_states" in described
    assert ("num_items_in_batch" in own) == getattr(modeling_roformer.__dict__[head], "accepts_loss_kwargs", True)
    assert "Returns:\n" in forward.__doc__


def test_the_bare_model_describes_every_argument():
    parameters = inspect.signature(RoFormerModel.forward).parameters
    assert set(parameters) - {"self", "kwargs"} <= set(entries(RoFormerModel.forward.__doc__))


@pytest.mark.parametrize("module", [heads, nezha])
def test_without_docstrings_there_is_no_help(module):
    """Compiled as by `python -OO`."""
    path = Path(module.__file__)
    stripped = types.ModuleType(module.__name__)
    stripped.__package__ = module.__package__
    exec(compile(path.read_text(encoding="utf-8"), path, "exec", optimize=2), stripped.__dict__)
    for name in HEADS:
        if head := vars(stripped).get(name):
            assert head.forward.__module__ != module.__name__ or head.forward.__doc__ is None
            ours = getattr(modeling_roformer, name)
            assert list(inspect.signature(head.forward).parameters) == list(inspect.signature(ours.forward).parameters)


def test_no_model_of_transformers_is_imported():
    """Under `python -OO` their docstrings' own machinery fails, and each takes its time."""
    for path in Path(modeling_roformer.__file__).parent.glob("*.py"):
        assert not re.search(
            r"^\s*from transformers\.models\.(?!auto\b)", path.read_text(encoding="utf-8"), re.MULTILINE
        )
