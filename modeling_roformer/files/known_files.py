"""The files of a model folder that the commands of this package write, and those that are somebody else's."""

from fnmatch import fnmatchcase
from pathlib import Path

from modeling_roformer import tokenization

NAMED = 5  # at most, in an error

# Paths in the folder; * also matches a slash.
WRITTEN = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "model-?????-of-?????.safetensors",
    "model.safetensors.index.json",
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "README.md",
    "onnx/*",
    # for sentence-transformers
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "[0-9]_[A-Z]*/config.json",
    "[0-9]_[A-Z]*/model.safetensors",
    # huggingface_hub, git and Python
    ".gitattributes",
    ".cache/*",
    "__pycache__/*.pyc",
)
# Written by export-tf, into a folder without config.json.
EXPORTED = ("bert_config.json", "vocab.txt", "*.index", "*.data-?????-of-?????")
_WEIGHTS = ("*.safetensors", "*.bin", "*.index", "*.weights", "*.h5")
_PACKAGE = Path(__file__).parents[1]


def is_model_folder(folder: Path) -> bool:
    """Return whether a folder has the configuration and the weights of a model.

    Not config.json alone: many programs have a file of that name.
    """
    configuration = any((folder / name).is_file() for name in ("config.json", "bert_config.json"))
    return configuration and any(any(folder.glob(pattern)) for pattern in _WEIGHTS)


def unknown_files(folder: Path, new: Path | None = None) -> list[str]:
    """Return the paths in a model folder that no command of this package writes, and that `new` does not have either.

    A link that leads to no file is one of them.
    """
    code, patterns = _code_files(), WRITTEN if (folder / "config.json").exists() else EXPORTED
    return sorted(
        name
        for path in folder.rglob("*")
        if not path.is_dir() or path.is_symlink()
        for name in [path.relative_to(folder).as_posix()]
        if not path.exists()
        or not (
            name in code
            or any(fnmatchcase(name, pattern) for pattern in patterns)
            or (new is not None and (new / name).is_file())
        )
    )


def _code_files() -> set[str]:
    """Return the names of the files that `push --with-code` can publish beside a checkpoint."""
    folders = (_PACKAGE, Path(tokenization.__file__).parent)
    return {path.name for folder in folders for path in folder.glob("[!_]*.py")}
