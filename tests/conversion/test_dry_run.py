"""`roformer convert --dry-run` and `roformer info` print what a conversion makes, or why it is refused."""

import json
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from helpers import command_line
from helpers.messages import refused
from helpers.paths import REPOSITORY
from safetensors.torch import load_file, save_file

from modeling_roformer.conversion.converter import convert
from modeling_roformer.conversion.errors import CheckpointError
from modeling_roformer.conversion.inspection.info import info

FIXTURES = REPOSITORY / "tests" / "fixtures"
LEGACY, PYTORCH = FIXTURES / "legacy", FIXTURES / "pytorch"
SOURCES = [
    *(LEGACY / name for name in ("word", "v2", "gpt", "sim", "wobert", "wonezha")),
    *(PYTORCH / name for name in ("v1", "sim", "v2", "wobert", "nezha", "classification")),
]
# Fields of a report on what was written.
WRITTEN = {"dry_run", "files", "verified", "seconds"}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_dry_run_reports_what_the_conversion_makes(source, tmp_path):
    dry = convert(source, tmp_path / "output", dry_run=True)
    assert list(tmp_path.iterdir()) == [] and dry.dry_run and not dry.files
    report = convert(source, tmp_path / "output")
    differing = {name for name, value in asdict(report).items() if asdict(dry)[name] != value}
    assert differing <= WRITTEN
    config = json.loads((tmp_path / "output" / "config.json").read_text(encoding="utf-8"))
    assert dry.architecture == config["architectures"][0]
    weights = load_file(tmp_path / "output" / "model.safetensors")
    assert dry.parameters == sum(tensor.numel() for tensor in weights.values())
    described = info(source)
    assert described.converts_to == dry.architecture and described.parameters == dry.parameters
    assert (described.family, described.sign) == (dry.family, dry.sign)
    assert described.left_out == {kind: len(names) for kind, names in dry.extras.items()} and not described.notes


def test_the_command_prints_the_report_and_writes_nothing(tmp_path):
    command = [command_line.ROFORMER, "convert", LEGACY / "word", "output", "--dry-run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={"COLUMNS": "200"})
    assert (done.returncode, done.stderr) == (0, "") and list(tmp_path.iterdir()) == []
    assert "dry run" in done.stdout and "RoFormerForMaskedLM" in done.stdout and "verified" not in done.stdout


def test_a_dry_run_refuses_an_output_folder_that_must_not_be_replaced(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with refused(FileExistsError, tmp_path):
        convert(LEGACY / "word", tmp_path, dry_run=True)


def configured(**changes):
    """Return a change of a folder: other fields in its config.json."""

    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes))

    return change


def without_a_weight(folder: Path) -> None:
    weights = torch.load(folder / "pytorch_model.bin", weights_only=True)
    del weights[LOST]
    torch.save(weights, folder / "pytorch_model.bin")


def in_safetensors_without_a_weight(folder: Path) -> None:
    without_a_weight(folder)
    weights = torch.load(folder / "pytorch_model.bin", weights_only=True)
    save_file({name: tensor.clone() for name, tensor in weights.items()}, folder / "model.safetensors")
    (folder / "pytorch_model.bin").unlink()


LOST = "roformer.encoder.layer.0.output.dense.weight"
PYTORCH_TROUBLE = {
    "a missing tensor": (without_a_weight, [LOST]),
    "a missing tensor, safetensors": (
        in_safetensors_without_a_weight,
        [LOST],
    ),
    "another number of layers": (
        configured(num_hidden_layers=5),
        ["roformer.encoder.layer.2.attention.self.query.weight", "num_hidden_layers"],
    ),
    "another size": (configured(intermediate_size=99), [99]),
    "another class": (configured(architectures=["RoFormerForTokenClassification"]), ["cls.predictions"]),
}


@pytest.mark.parametrize("case", PYTORCH_TROUBLE)
def test_info_notes_why_a_pytorch_folder_is_refused(case, tmp_path):
    damage, facts = PYTORCH_TROUBLE[case]
    source = shutil.copytree(PYTORCH / "v1", tmp_path / "v1")
    damage(source)
    with refused(CheckpointError, source, *facts) as caught:
        convert(source, tmp_path / "output", dry_run=True)
    described = info(source)
    assert described.converts_to is None and str(caught.value) in described.notes
