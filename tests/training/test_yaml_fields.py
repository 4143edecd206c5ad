"""YAML files of stages and settings: every value has one meaning, and what is refused is named with its line and
field."""

import math

import pytest
from helpers.messages import assert_states, refused
from helpers.paths import REPOSITORY

from modeling_roformer.training.errors import FieldError, TrainingError
from modeling_roformer.training.pretraining.stages import Stage, read_stages
from modeling_roformer.training.runs.yaml_fields import DEEPEST, read_yaml

STAGES = """\
stages:
  - length: 512
    batch_size: 256
    steps: 200_000
    learning_rate: 1e-4
"""
SETTING = (REPOSITORY / "examples" / "translation" / "quick.yaml").read_text(encoding="utf-8")


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "some.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def refusal(read, path) -> str:
    with refused(TrainingError) as caught:
        read(path)
    said = str(caught.value)
    assert said.startswith(str(path)) and len(said) < len(str(path)) + 300
    return said.removeprefix(str(path))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("-12", -12), ("+3", 3), ("200_000", 200_000), ("999999999999999999", 999999999999999999),
        ("1e-4", 1e-4), ("5E+3", 5000.0), ("0.5", 0.5), (".5", 0.5), ("3.", 3.0), ("-1.5e3", -1500.0),
        ("1_000.5", 1000.5), (".inf", math.inf), ("-.Inf", -math.inf), ("true", True), ("False", False), ("null", None),
        ("~", None), ("", None), ("'0512'", "0512"), ('"no"', "no"), ("cosine", "cosine"),
        ("a: [1, {b: c}]", {"a": [1, {"b": "c"}]}), ("- 1", [1]), ("|\n  a\n  b\n", "a\nb\n"),
    ],
)  # fmt: skip
def test_values(write, text, value):
    found, _ = read_yaml(write(text))
    assert found == value and type(found) is type(value)


def test_lines(write):
    _, lines = read_yaml(write(STAGES + "defaults: {warmup: 0,\n  masked: 0.3}\n"))
    assert lines["stages",] == 1 and lines["stages", 0] == 2 and lines["stages", 0, "steps"] == 4
    assert lines["defaults",] == 6 and lines["defaults", "masked"] == 7


@pytest.mark.parametrize(
    ("old", "new", "line", "named"),
    [
        ("1e-4", "2026-01-01", 5, ["learning_rate", "2026-01-01"]),
        ("1e-4", "2026-13-45", 5, ["learning_rate", "2026-13-45"]),
        ("512", "0512", 2, ["length", "0512"]),
        ("512", "0o17", 2, ["length", "0o17"]),
        ("512", "0x20", 2, ["length", "0x20"]),
        ("512", "0b11", 2, ["length", "0b11"]),
        ("512", "1:30", 2, ["length", "1:30"]),
        ("512", "1:30.5", 2, ["length", "1:30.5"]),
        ("512", "1__0", 2, ["length", "1__0"]),
        ("512", "512 tokens", 2, ["length", "512 tokens"]),
        ("512", "512\n\n\n      tokens", 2, ["length", "512 tokens"]),
        ("200_000", "9" * 400, 4, ["steps", "9" * 50 + "…", "18 digits"]),
        ("200_000", "9" * 5000, 4, ["steps", "9" * 50 + "…", "18 digits"]),
        ("200_000", "1" + "0" * 30, 4, ["steps", "1" + "0" * 30, "18 digits"]),
        ("200_000", "1e30", 4, ["steps", "1e+30", "integer"]),
        ("200_000", "3000000000", 4, ["steps", "2,147,483,647"]),
        ("256", "yes", 3, ["batch_size", "yes", "true or false"]),
        ("256", "Off", 3, ["batch_size", "Off"]),
        ("    steps", "    length: 300\n    steps", 4, ["length", "twice", "line 2"]),
        ("    steps", "    'length': 300\n    steps", 4, ["length", "twice", "line 2"]),
        ("stages:", "stages: []\nstages:", 2, ["stages", "twice", "line 1"]),
        ("stages:", "defaults: {warmup: 0, warmup: 1}\nstages:", 1, ["warmup", "twice"]),
        ("stages:", "a: &a [1]\nb: [*a, *a]\nstages:", 1, ["&a", "anchor"]),
        ("stages:", "a: *a\nstages:", 1, ["*a", "anchor"]),
        ("512", "!!int '512'", 2, ["!!int", "tag"]),
        ("512", "!!python/object/apply:os.getpid []", 2, ["!!python/object/apply:os.getpid", "tag"]),
        ("512", "[" * 5000 + "]" * 5000, 2, [DEEPEST]),
        ("512", "[" * 5000, 2, [DEEPEST]),
        ("    steps", "\tsteps", 4, ["tab"]),
        ("steps", "\ufeffsteps", 4, ["byte order mark"]),
        ("steps", "\0steps", 4, ["U+0000"]),
        ("length", "2026-01-01", 2, ["name", "2026-01-01"]),
        ("length", "12", 2, ["name", "'12'"]),
        ("length", "? [1, 2]\n    ", 2, ["name", "list", "text"]),
        ("    learning_rate: 1e-4\n", "    learning_rate: 1e-4\n---\n", 6, ["document"]),
        ("1e-4", "'1e-4'", 5, ["learning_rate", "'1e-4'", "number"]),
        ("1e-4", "１e-4", 5, ["learning_rate", "'１e-4'", "number"]),
        ("steps: ", "step: ", 4, ["unknown field step"]),
        ("    steps: 200_000\n", "", 2, ["steps", "stage 1", "missing"]),
        ("stages:", "stage: 1\nstages:", 1, ["unknown field stage"]),
        ("stages:", "defaults: []\nstages:", 1, ["defaults", "[]", "fields"]),
        ("stages:", "defaults: false\nstages:", 1, ["defaults", False, "fields"]),
        ("length", '"\\e[2J"', 2, ["name", "'\\x1b[2J'"]),
        ("length", '"\\ud800"', 2, ["name", "'\\ud800'"]),
    ],
    ids=lambda value: repr(value)[:40],
)  # fmt: skip
def test_a_refused_field_is_named_with_its_line(write, old, new, line, named):
    said = refusal(read_stages, write(STAGES.replace(old, new, 1)))
    assert said.startswith(f", line {line}"), said
    assert_states(said, *named)


@pytest.mark.parametrize(
    ("data", "line"), [(STAGES.encode() + b"# caf\xe9\n", 6), (STAGES.encode("utf-16"), 1), (b"\xef\xbb\xbf\n\xff", 2)]
)
def test_a_file_that_is_not_utf_8_is_refused(write, data, line):
    assert_states(refusal(read_stages, write(data)), f", line {line}", "UTF-8")


def test_a_file_that_is_no_list_of_stages(write):
    path = write(b"a" * (1 << 20) + b"a")
    assert_states(refusal(read_stages, path), "1,048,576")
    for text in ("", "# nothing", "stages", "[stages]", "stages: {length: 512}"):
        assert_states(refusal(read_stages, write(text)), "list", "stages")


def test_a_stage_made_in_python_has_bounds_too():
    for steps in (10**30, 10**5000):
        with refused(FieldError, "steps", "2,147,483,647"):
            Stage(512, 256, steps, 1e-4)
    with refused(FieldError, "learning_rate", "maximum of 1"):
        Stage(512, 256, 10, 10**400)


def test_every_yaml_file_of_ours_is_read():
    stages = [read_stages(path) for path in (REPOSITORY / "examples" / "stages").glob("*.yaml")]
    assert len(stages) > 4 and all(stages)
