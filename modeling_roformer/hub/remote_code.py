"""The code next to a checkpoint: `trust_remote_code=True` loads the checkpoint with it, without this package.

transformers finds the classes through `auto_map` in config.json and tokenizer_config.json, and the files that theirs
import by `from .name import …`. So the files of both packages lie side by side, under their own names.
"""

import inspect
import json
import re
from collections.abc import Container
from pathlib import Path
from typing import Any

from modeling_roformer.files.reading import read_json

# `pipeline` looks for the model of a custom task among transformers' own Auto classes. None is for triplets.
# This one is unused: RoFormer has no such head.
AUTO_CLASS_FOR_TRIPLETS = "AutoModelForNextSentencePrediction"


def files_with_code(directory: str | Path) -> dict[str, bytes]:
    """Return name -> content of the files that a model folder also needs to be loadable without this package.

    These are the Python files, and config.json and tokenizer_config.json with `auto_map`, which replace the folder's
    own. `auto_map` has every Auto class that this package supports, whatever the folder holds: for any other,
    transformers would silently use its own class. Only the folder of a model for triplets has the class for triplets,
    which transformers lacks, and its pipeline; only that of a model with linear attention has its code.

    Raises:
        ValueError: the folder's model is not one that this package computes.
    """
    from transformers.dynamic_module_utils import get_relative_import_files

    from modeling_roformer.auto_classes import CONFIG_CLASSES, TOKENIZER_NAMES, auto_model_classes
    from modeling_roformer.configuration import RoFormerConfig
    from modeling_roformer.tokenization import RoFormerTokenizer

    directory = Path(directory)
    config = read_json(directory / "config.json")
    config_class = CONFIG_CLASSES.get(config.get("model_type", ""))
    if config_class is None:
        raise ValueError(
            f"{directory / 'config.json'} has model_type {config.get('model_type')!r}, but this package's code "
            f"computes only {', '.join(CONFIG_CLASSES)}; `roformer push` without --with-code publishes it"
        )
    default: dict[str, Any] = {"tokenizer_class": RoFormerTokenizer.__name__}
    tokenizer_config = read_json(directory / "tokenizer_config.json", default)

    config.pop("custom_pipelines", None)  # transformers would run the code that a stranger's entry names
    classes = {"AutoConfig": config_class} | auto_model_classes(config_class)
    also_needed = []
    if config.get("attention_type") == "linear":
        from modeling_roformer import linear_models

        classes = {auto_class: getattr(linear_models, cls.__name__, cls) for auto_class, cls in classes.items()}
    if "RoFormerForTripletMatching" not in (config.get("architectures") or ()):
        classes.pop("AutoModelForTripletMatching", None)  # transformers has no class for triplets to fall back to
    else:
        from modeling_roformer.triplet_pipeline import TASK, TripletMatchingPipeline

        classes[AUTO_CLASS_FOR_TRIPLETS] = classes["AutoModelForTripletMatching"]
        also_needed.append(TripletMatchingPipeline)
        entry = {"impl": _reference(TripletMatchingPipeline), "pt": [AUTO_CLASS_FOR_TRIPLETS], "type": "text"}
        config["custom_pipelines"] = {TASK: entry}
    config["auto_map"] = {auto_class: _reference(cls) for auto_class, cls in classes.items()}
    if config_class is RoFormerConfig or tokenizer_config.get("tokenizer_class") in TOKENIZER_NAMES:
        also_needed.append(RoFormerTokenizer)
        # A pair of the slow tokenizer and the fast one; transformers takes the second.
        tokenizer_config["auto_map"] = {"AutoTokenizer": [None, _reference(RoFormerTokenizer)]}

    modules = {Path(inspect.getfile(cls)).resolve() for cls in [*classes.values(), *also_needed]}
    sources = modules | {Path(file) for path in modules for file in get_relative_import_files(path)}
    return {
        "config.json": _json(config),
        "tokenizer_config.json": _json(tokenizer_config),
        **{path.name: path.read_bytes() for path in sorted(sources)},
    }


def missing_code(directory: str | Path, files: Container[str]) -> list[str]:
    """Return the Python files that `auto_map` and `custom_pipelines` in a folder name and that `files` lacks."""
    named: set[str] = set()
    for name in ("config.json", "tokenizer_config.json"):
        settings = read_json(Path(directory) / name, default={})
        classes = json.dumps([settings.get("auto_map"), settings.get("custom_pipelines")])
        named |= set(re.findall(r'"(\w+)\.\w+"', classes))  # "repository--file.Class" is in another repository
    return sorted(f"{module}.py" for module in named if f"{module}.py" not in files)


def _reference(cls: type) -> str:
    return f"{cls.__module__.rpartition('.')[2]}.{cls.__name__}"


def _json(content: dict) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode("utf-8")
