"""The content of a published folder: its files without local paths, its code, and the card, which lists its needs."""

import json
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath, PureWindowsPath

from safetensors import SafetensorError, safe_open

from modeling_roformer.files.model_folder import why_no_model
from modeling_roformer.files.reading import read_json
from modeling_roformer.model_cards.facts import safetensors_header
from modeling_roformer.model_cards.kinds import why_package_is_needed
from modeling_roformer.tokenization.vocabulary import check_same_files

from .published_files import published_files
from .remote_code import files_with_code, missing_code

CARD = "README.md"
WEIGHTS, INDEX, GRAPH = "model.safetensors", "model.safetensors.index.json", "onnx/model.onnx"
VOCABULARY, TOKENIZER, WORDPIECE = "vocab.txt", "tokenizer.json", "WordPiece"
SETTINGS = ("config.json", "generation_config.json", "tokenizer_config.json", "adapter_config.json")
PATH_FIELD = re.compile(r".*name_or_path|(vocab|merges|tokenizer|special_tokens_map)_file|user_dict")
NEEDS_PACKAGE = """
## What it needs

transformers alone does not load this model: install the package `modeling_roformer`, and import it first.

```python
import modeling_roformer  # registers the classes with transformers
```
"""
HAS_CODE = """
## What it needs

The code that computes this model is next to it: where the package `modeling_roformer` is not installed, load the model
with `trust_remote_code=True`.
"""


def published_content(directory: Path, with_code: bool, tell: Callable[[str], object]) -> dict[str, Path | bytes]:
    """Check a model folder; return its files as they are published, by name. Arguments and errors are `push`'s."""
    if reason := why_no_model(directory):
        raise ValueError(reason)
    found, note = published_files(directory)
    for name in ("config.json", "tokenizer_config.json", CARD):
        if (directory / name).exists() and name not in found:
            raise ValueError(f"{directory / name} contains a private key or a token of the Hub: remove it there")
    _check_weights(directory, found)
    if {VOCABULARY, TOKENIZER} <= found.keys() and read_json(found[TOKENIZER]).get("model", {}).get(
        "type"
    ) == WORDPIECE:
        check_same_files(found[VOCABULARY], found[TOKENIZER])
    for name, path in found.items():
        if name.lower().endswith(".onnx"):
            _check_graph(path, name, found, tell)
    files: dict[str, Path | bytes] = {**found}
    if with_code:
        files |= files_with_code(directory)
    elif absent := missing_code(directory, files):
        raise ValueError(
            f"auto_map or custom_pipelines in {directory} name {', '.join(absent)}, which is missing or not published: "
            "put it into the folder, or push with --with-code"
        )
    files |= without_local_paths(files)
    if note:
        tell(note)
    return files


def _check_weights(directory: Path, files: dict[str, Path]) -> None:
    """Raise ValueError if there are no weights, or or a file of them is missing, damaged or not published."""
    names = {WEIGHTS, INDEX, GRAPH} & files.keys()
    if not names:
        raise ValueError(f"{directory} has no weights ({WEIGHTS} or {INDEX}): save the model there first")
    shards = read_json(files[INDEX])["weight_map"] if INDEX in names else {}
    for name in sorted({*shards.values()} | {WEIGHTS} & names):
        if name not in files:
            raise ValueError(f"{directory} lacks {name!r}, which {INDEX} names, or it is not published")
        try:
            safetensors_header(files[name])
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{files[name]} is not a whole safetensors file: {error}") from None
        if tensor := _first_not_finite(files[name]):
            raise ValueError(
                f"{files[name]} has values that are not finite in {tensor}: the file is damaged, or training diverged"
            )


def _first_not_finite(weights: Path) -> str | None:
    """Return the name of a tensor with NaN or infinite values, or None."""
    import torch

    with safe_open(weights, "pt") as tensors:
        for name in tensors.keys():  # noqa: SIM118, it is not a dict
            tensor = tensors.get_tensor(name)
            if tensor.is_floating_point() and tensor.itemsize == 1:
                tensor = tensor.to(torch.bfloat16)  # isfinite does not take float8; bfloat16 has all of its numbers
            if not tensor.isfinite().all():
                return name
    return None


def _check_graph(path: Path, name: str, files: dict[str, Path], tell: Callable[[str], object]) -> None:
    """Raise ValueError if a graph for ONNX Runtime names a file with its weights that is not there."""
    try:
        import onnx
    except ModuleNotFoundError:
        tell(f"{path} is not checked for missing data, since the package onnx is not installed")
        return
    graph = onnx.load(path, load_external_data=False).graph
    for entry in {entry.value for t in graph.initializer for entry in t.external_data if entry.key == "location"}:
        if str(PurePosixPath(name).parent / entry) not in files:
            raise ValueError(
                f"{path} keeps weights in {entry!r}, which is missing or not published: put that file beside the "
                "graph, or export the model again"
            )


def without_local_paths(files: dict[str, Path | bytes]) -> dict[str, bytes]:
    """Return new content for each settings file that names a path of this machine: only the path's last part is kept.

    transformers before version 5 wrote such paths into config.json, and peft still does into adapter_config.json.
    """
    changed = {}
    for name, file in files.items():
        if PurePosixPath(name).name in SETTINGS:
            settings = json.loads(file) if isinstance(file, bytes) else read_json(file)
            cleaned = _cleaned(settings)
            if cleaned != settings:
                changed[name] = (json.dumps(cleaned, indent=2, ensure_ascii=False) + "\n").encode("utf-8")
    return changed


def _cleaned(value: object, field: str = "") -> object:
    if isinstance(value, dict):
        return {key: _cleaned(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [_cleaned(inner, field) for inner in value]
    # `name` and `owner/name` are on the Hub, unless such a folder exists here.
    if isinstance(value, str) and PATH_FIELD.fullmatch(field) and ("/" in value or "\\" in value):
        on_hub = re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", value) and not Path(value).exists()
        return value if on_hub else PureWindowsPath(value).name
    return value


def with_needs(card: str, directory: Path, with_code: bool) -> str:
    """Return the card with a section on what is needed to load the model, unless the card has one."""
    # A card is its owner's text: the call or the import that a reader would type shows that it says so.
    if with_code:
        return card if "trust_remote_code" in card else f"{card.rstrip()}\n{HAS_CODE}"
    tokenizer_config = read_json(directory / "tokenizer_config.json", default={})
    needs_package = why_package_is_needed(read_json(directory / "config.json"), tokenizer_config) is not None
    if needs_package and "import modeling_roformer" not in card:
        return f"{card.rstrip()}\n{NEEDS_PACKAGE}"
    return card
