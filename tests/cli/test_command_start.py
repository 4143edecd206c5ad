"""The command `roformer` starts without models, and nothing else does."""

import ast
import shlex
import subprocess
import sys

import pytest
from helpers.messages import assert_states
from helpers.paths import REPOSITORY

import modeling_roformer
from modeling_roformer.conversion.converter import convert

LEGACY = REPOSITORY / "tests" / "fixtures" / "legacy"
FAMILIES = ("word", "character", "v2", "gpt", "sim")
MODELS = "transformers.modeling_utils"  # what every model class is made of
# As pip writes it, and besides, what was imported.
COMMAND = """
import sys
from roformer_command import main
try:
    main()
finally:
    print(*sys.modules, sep="\\n", file=sys.stderr)
"""


@pytest.fixture
def start(tmp_path):
    """Runs a program called roformer; gives its stdout, and the lines of its stderr."""

    def start(program: str, *arguments) -> tuple[str, set[str]]:
        file = tmp_path / "bin" / "roformer"
        file.parent.mkdir(exist_ok=True)
        file.write_text(program, encoding="utf-8")
        done = subprocess.run([sys.executable, str(file), *map(str, arguments)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout, set(done.stderr.split("\n"))

    return start


def test_help_needs_neither_torch_nor_transformers(start):
    out, imported = start(COMMAND, "--help")
    assert "convert" in out and "push" in out
    assert not imported & {"torch", "transformers", "gradio"}
    assert start(COMMAND, "--version")[0] == f"{modeling_roformer.__version__}\n"


# Ctrl-C while the command's modules are imported, which takes tenths of a second.
INTERRUPTED = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from roformer_command import main
main()
"""


@pytest.mark.usefixtures("default_signals")
def test_an_interruption_at_the_start_shows_no_traceback():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, "--help"], capture_output=True, text=True)
    assert done.returncode == 130 and not done.stdout and done.stderr.count("\n") == 1
    assert_states(done.stderr, "roformer", "interrupted")


# Each line is a command, and they run in one process: after which of them is torch there?
LIGHT = """
import shlex, sys
from roformer_command import main
for line in sys.stdin.read().splitlines():
    sys.argv = ["roformer", *shlex.split(line)]
    try:
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    heavy = sorted({"torch", "transformers", "tokenizers", "gradio"} & sys.modules.keys())
    print(f"code {code}", *heavy, "<-", line, file=sys.stderr)
"""


def test_commands_without_a_model_import_neither_torch_nor_transformers(tmp_path):
    """Refusals of paths, options, missing and damaged files; what `info` says of a folder, and `card`."""
    program = tmp_path / "bin" / "roformer"
    program.parent.mkdir()
    program.write_text(LIGHT, encoding="utf-8")
    legacy, here = shlex.quote(str(LEGACY)), shlex.quote(str(tmp_path))  # in which there may be spaces
    convert(LEGACY / "word", tmp_path / "saved")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.json").write_text("{")
    refused = [
        f"convert {here}/missing out",
        "convert junnyu/roformer_chinese_base out",
        f"convert {legacy}/word {here}/saved",
        f"convert {legacy}/word out --family x",
        f"convert {legacy}/word out --head x",
        f"convert {legacy}/word out --as x",
        f"convert {legacy}/word out --dtype x",
        f"convert {legacy}/gpt out --family v2",
        f"convert {here}/damaged out",
        f"export-tf {here}/missing out",
        f"export-tf {legacy}/word out",
        f"export-tf {here}/saved {here}/saved",
        f"export-onnx {here}/missing out",
        f"export-onnx {legacy}/word out",
        f"export-onnx {here}/damaged out",
        f"export-onnx {here}/saved {here}/saved",
        f"export-nomic-bert {here}/missing out",
        f"export-nomic-bert {legacy}/word out",
        f"export-nomic-bert {here}/damaged out",
        f"export-nomic-bert {here}/saved out",
        f"push {here}/missing me/model",
        f"push {here}/damaged me/model",
        f"push {here}/saved a/b/c",
        f"pull me/model {here}/saved",
        "pull a/b/c out",
        f"vocab {here}/missing --base {legacy}/word/vocab.txt --output out",
        f"vocab {legacy}/word/vocab.txt --base {here}/missing --output out",
        f"embed {here}/missing {legacy}/word/vocab.txt out",
        f"embed {here}/saved {here}/saved/vocab.txt {legacy}",
        f"rank text {here}/missing",
        f"rank text {here}/missing --words",
        f"rank text {here}/missing --words --both",
        f"predict {here}/missing {legacy}/word/vocab.txt --output out.csv",
        f"predict {here}/saved {legacy}/word/vocab.txt --output out",
        f"predict {here}/saved {here}/missing --output out.csv",
        f"predict {here}/saved {legacy}/word/vocab.txt --output out.csv --dtype x",
        f"vocab-init {here}/missing {legacy}/word/vocab.txt out",
        f"vocab-init {here}/saved {here}/missing out",
        f"card {here}/missing",
        f"info {here}/missing",
        f"info {here}/damaged",
        f"page {here}/missing",
        f"page {legacy}/word",
        "nonsense",
        "convert --nonsense",
    ]
    done = [f"info {here}/saved", f"info --json {legacy}/gpt", f"card {here}/saved"]
    ran = subprocess.run(
        [sys.executable, program], input="\n".join(refused + done), capture_output=True, text=True, cwd=tmp_path
    )
    said = [line for line in ran.stderr.splitlines() if line.startswith("code ")]
    assert said == [f"code {2 if 'nonsense' in line else 1} <- {line}" for line in refused] + [
        f"code 0 <- {line}" for line in done
    ], ran.stderr
    assert "RoFormer" in ran.stdout and "Traceback" not in ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_converting_needs_no_model_and_gives_the_same(family, start, tmp_path):
    """The process of the tests has imported the model classes."""
    out, imported = start(COMMAND, "convert", LEGACY / family, tmp_path / "converted")
    assert "RoFormer" in out
    assert "torch" in imported and not imported & {MODELS, "modeling_roformer.registration.public_names"}
    convert(LEGACY / family, tmp_path / "expected")
    for file in (tmp_path / "expected").rglob("*"):
        if file.is_file() and file.name != "README.md":  # which says when
            found = tmp_path / "converted" / file.relative_to(tmp_path / "expected")
            assert found.read_bytes() == file.read_bytes(), file


@pytest.mark.slow
def test_verifying_loads_with_this_package(start, tmp_path):
    out, imported = start(COMMAND, "convert", LEGACY / "v2", tmp_path / "v2", "--family", "v2", "--verify")
    assert "every tensor" in out
    assert {"modeling_roformer.registration.registry", "modeling_roformer.heads"} <= imported


def test_code_of_commands_takes_transformers_from_the_registration():
    """Before it, transformers' Auto classes and pipelines compute with transformers' own RoFormer."""
    rooms = ("conversion", "model_cards", "serving", "training")
    inner = ("cli", "data", "files", "hub", "output", "vocabulary_maker")
    rooms += tuple(f"modeling_roformer/{room}" for room in inner)
    found = set()
    for file in (file for room in rooms for file in (REPOSITORY / room).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in getattr(node, "names", ()) if isinstance(alias, ast.alias)]
            from_transformers = isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("transformers.")
            if (isinstance(node, ast.Import) and "transformers" in names) or (
                from_transformers and any(name.startswith(("Auto", "pipeline")) for name in names)
            ):
                found.add(str(file.relative_to(REPOSITORY)))
    assert found == {"model_cards/kinds.py"}  # which reads names only


@pytest.mark.slow
def test_a_program_named_roformer_has_models_from_the_start(start):
    out, _ = start("""  # modeling_roformer.cli
import modeling_roformer
from transformers import AutoConfig, AutoModel
print(AutoModel.from_config(AutoConfig.for_model("roformer", num_hidden_layers=1)).__module__)
""")
    assert out == "modeling_roformer.model\n"


@pytest.mark.slow
def test_a_public_name_registers_the_package_in_a_script_that_starts_without_models(start):
    out, _ = start("""
import sys
import roformer_command
import modeling_roformer
assert not hasattr(modeling_roformer, "serving") and "torch" not in sys.modules
from transformers import AutoConfig
from modeling_roformer import RoFormerConfig
print(RoFormerConfig.__module__, AutoConfig.for_model("roformer").__class__ is RoFormerConfig)
""")
    assert out == "modeling_roformer.configuration True\n"
