"""Copies and changes of a legacy checkpoint: of its variables, with their checksums, and of its bert_config.json."""

import json
import shutil
from pathlib import Path

import numpy as np

from modeling_roformer.conversion.formats.tensor_bundle import TensorBundle
from modeling_roformer.conversion.formats.tensor_bundle_writer import write_bundle

PREFIX = "bert_model.ckpt"


def copy_form(fixture: Path, file: str, folder: Path) -> Path:
    """Copy one form of a Keras model, the files that begin with `file`, with its configuration and vocabulary."""
    folder.mkdir(exist_ok=True)
    for pattern in ("bert_config.json", "vocab.txt", f"{file}*"):
        for path in fixture.glob(pattern):
            shutil.copyfile(path, folder / path.name)
    return folder


def read(folder: Path) -> dict[str, np.ndarray]:
    bundle = TensorBundle(folder / PREFIX)
    return {name: bundle.read(name) for name in bundle.entries}


def write(folder: Path, variables: dict[str, np.ndarray]) -> None:
    for file in folder.glob(f"{PREFIX}*"):
        file.unlink()
    write_bundle(folder / PREFIX, variables.items())


def rewrite(folder: Path, change) -> None:
    """Write the checkpoint anew after `change` has edited the dict of its variables."""
    variables = read(folder)
    change(variables)
    write(folder, variables)


def edit_config(folder: Path, **changes) -> None:
    """Change fields of bert_config.json; `...` removes one."""
    path = folder / "bert_config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in config.items() if value is not ...}))
