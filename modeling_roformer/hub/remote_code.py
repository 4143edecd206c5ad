"""The code next to a checkpoint, with which `trust_remote_code=True` loads it without this package.

transformers finds the classes through `auto_map` in config.json and tokenizer_config.json. It copies each class's file,
and the files imported there by `from .name import …`, out of the checkpoint's folder. So the files of both packages lie
side by side there, under their own names.
"""

import ast
import inspect
import json
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

# `pipeline` looks for the model of a custom task among transformers' own Auto classes, none of which is for triplets.
# This one is unused: RoFormer has no such head.
AUTO_CLASS_FOR_TRIPLETS = "AutoModelForNextSentencePrediction"


def files_with_code(directory: str | Path) -> dict[str, bytes]:
    """Return the files that a model folder also needs to be loadable without this package.

    Args:
        directory: a saved model with its config.json. It is only read.

    Returns:
        Name -> content: config.json and tokenizer_config.json with `auto_map`, which replace the folder's own, and the
        Python files. Every Auto class that this package supports is in `auto_map`, whatever the folder holds: for any
        other, transformers would silently use its own class. The folder of a model for triplets gets its pipeline too.

    Raises:
        ValueError: the folder's model is not one that this package computes.

    Example:
        >>> for name, content in files_with_code("my-model").items():
        ...     (copy / name).write_bytes(content)
    """
    from ..configuration import RoFormerConfig
    from ..tokenization import RoFormerTokenizer
    from .auto_classes import CONFIG_CLASSES, TOKENIZER_NAMES, auto_model_classes

    directory = Path(directory)
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    config_class = CONFIG_CLASSES.get(config.get("model_type"))
    if config_class is None:
        raise ValueError(
            f"{directory / 'config.json'} has model_type {config.get('model_type')!r}, but this package's code "
            f"computes only {', '.join(CONFIG_CLASSES)}; `roformer push` without --with-code publishes it"
        )
    tokenizer_file = directory / "tokenizer_config.json"
    tokenizer_config: dict[str, Any] = {"tokenizer_class": RoFormerTokenizer.__name__}
    if tokenizer_file.exists():
        tokenizer_config = json.loads(tokenizer_file.read_text(encoding="utf-8"))

    config.pop("custom_pipelines", None)  # transformers would run the code that a stranger's entry names
    classes = {"AutoConfig": config_class} | auto_model_classes(config_class)
    also_needed = []
    if "RoFormerForTripletMatching" in (config.get("architectures") or ()):
        from ..triplet_pipeline import TASK, TripletMatchingPipeline

        classes[AUTO_CLASS_FOR_TRIPLETS] = classes["AutoModelForTripletMatching"]
        also_needed.append(TripletMatchingPipeline)
        entry = {"impl": _reference(TripletMatchingPipeline), "pt": [AUTO_CLASS_FOR_TRIPLETS], "type": "text"}
        config["custom_pipelines"] = {TASK: entry}
    config["auto_map"] = {auto_class: _reference(cls) for auto_class, cls in classes.items()}
    if config_class is RoFormerConfig or tokenizer_config.get("tokenizer_class") in TOKENIZER_NAMES:
        also_needed.append(RoFormerTokenizer)
        # A pair of the slow tokenizer and the fast one; transformers takes the second.
        tokenizer_config["auto_map"] = {"AutoTokenizer": [None, _reference(RoFormerTokenizer)]}

    sources = source_files(Path(inspect.getfile(cls)) for cls in [*classes.values(), *also_needed])
    return {
        "config.json": _json(config),
        "tokenizer_config.json": _json(tokenizer_config),
        **{name: path.read_bytes() for name, path in sorted(sources.items())},
    }


def source_files(files: Iterable[Path]) -> dict[str, Path]:
    """Return these Python files and all siblings that they import, by name.

    Raises:
        ValueError: a file has an import that does not work when all files are in one folder.
    """
    found: dict[str, Path] = {}
    waiting = list(files)
    while waiting:
        path = waiting.pop().resolve()
        known = found.setdefault(path.name, path)
        if known != path:
            raise ValueError(f"{known} and {path} have the same name, but must be in one folder")
        waiting += [path.parent / f"{name}.py" for name in _siblings(path) if f"{name}.py" not in found]
    return found


def missing_code(directory: str | Path, files: Container[str]) -> list[str]:
    """Return the Python files that `auto_map` and `custom_pipelines` in a folder name and that `files` lacks."""
    directory = Path(directory)
    named: set[str] = set()
    for name in ("config.json", "tokenizer_config.json"):
        if (directory / name).exists():
            content = json.loads((directory / name).read_text(encoding="utf-8"))
            pipelines = content.get("custom_pipelines")
            tasks = pipelines.values() if isinstance(pipelines, dict) else ()
            references = [content.get("auto_map"), *(task.get("impl") for task in tasks if isinstance(task, dict))]
            # `repository--file.Class` is code in another repository.
            named |= {f"{text.partition('.')[0]}.py" for text in _texts(references) if "--" not in text}
    return sorted(name for name in named if name not in files)


def _texts(content: object) -> Iterable[str]:
    """Yield every string in a piece of JSON: `auto_map` holds names, pairs of names, or is itself a pair."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, (list, dict)):
        for part in content.values() if isinstance(content, dict) else content:
            yield from _texts(part)


def _siblings(path: Path) -> set[str]:
    """Return the modules that a file imports by `from .name import …`, the only form that transformers follows."""
    siblings = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.ImportFrom) and node.level:
            if node.level > 1 or node.module is None or "." in node.module:
                raise ValueError(f"{path}:{node.lineno}: import siblings as `from .name import …` only")
            siblings.add(node.module)
    return siblings


def _reference(cls: type) -> str:
    return f"{cls.__module__.rpartition('.')[2]}.{cls.__name__}"


def _json(content: dict) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode("utf-8")
