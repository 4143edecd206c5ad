"""What a checkpoint is, without loading it: configuration, vocabulary, headers of the weights, and the card's facts.

The numbers of the tensors are never read, but for the few bytes in which a checkpoint of tf.keras keeps the names of its
layers. saved_info.py and legacy_info.py look into folders, hub_info.py into repositories.
"""

import dataclasses
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from rich.filesize import decimal
from rich.table import Table

from .errors import CheckpointError
from .legacy_folder import CONFIGS, INDEX, PYTORCH, VOCABULARY, is_hdf5, name_of, unpack
from .summary import summary_table

SMALL = (*CONFIGS, VOCABULARY, "tokenizer_config.json", "tokenizer.json", "README.md")


@dataclass
class CheckpointInfo:
    """What is known of a checkpoint; None, or nothing, where it is not.

    `kind` is what sort of files it consists of; `family` what it is called, and `sign` how that is known. `parameters`
    counts what the model has, without tables that are computed and second copies of tied weights; `dtypes` says how many
    of them are of which number format. `vocabulary` has `entries`, `words` and `unit`; `positions` has `type` and what
    belongs to it. `trained_length`, in tokens, is that of the released checkpoint that this one is, of its table of
    positions, or of its rope_parameters. `source` has what its card tells of where it comes from. `files` are pairs of
    name and bytes, and `notes` sentences on what could not be read.
    """

    path: str
    kind: str
    family: str | None = None
    sign: str | None = None
    model_type: str | None = None
    architecture: str | None = None
    task: str | None = None
    layers: int | None = None
    hidden_size: int | None = None
    attention_heads: int | None = None
    feed_forward_size: int | None = None
    embedding_size: int | None = None
    activation: str | None = None
    parameters: int | None = None
    dtypes: dict[str, int] = field(default_factory=dict)
    vocabulary: dict[str, object] = field(default_factory=dict)
    tokenizer: str | None = None
    positions: dict[str, object] = field(default_factory=dict)
    trained_length: int | None = None
    needs_package: bool | None = None
    loads_with: str | None = None
    left_out: dict[str, int] = field(default_factory=dict)
    source: dict[str, str] = field(default_factory=dict)
    files: list[tuple[str, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def json(self) -> str:
        """Everything, for programs: one object, its keys the names of the fields, files as objects of name and size."""
        content = dataclasses.asdict(self)
        content["files"] = [{"name": name, "size": size} for name, size in self.files]
        return json.dumps(content, ensure_ascii=False, indent=2)

    def rows(self) -> dict[str, str]:
        """Everything, for people: what each line of the table is called, and what it says."""
        size = [f"{self.layers} layers x {self.hidden_size:,}"] if self.layers and self.hidden_size else []
        size += [f"{self.attention_heads} heads"] if self.attention_heads else []
        size += [f"feed-forward {self.feed_forward_size:,}"] if self.feed_forward_size else []
        size += [f"embeddings {self.embedding_size:,}"] if self.embedding_size else []
        rows = {
            "checkpoint": f"{self.path} ({self.kind})",
            "family": _because(self.family, self.sign),
            "class": _because(self.architecture, self.model_type and f"model_type {self.model_type}"),
            "task": self.task,
            "size": ", ".join(size),
            "parameters": self.parameters and f"{self.parameters:,}",
            "dtype": _dtypes(self.dtypes),
            "vocabulary": _vocabulary(self.vocabulary),
            "tokenizer": self.tokenizer,
            "positions": _positions(self.positions),
            "activation": self.activation,
            "trained at": f"up to {self.trained_length:,} tokens" if self.trained_length else "a length not known",
            "loads with": self.loads_with,
        }
        rows["beside the model"] = ", ".join(f"{name} ({count:,})" for name, count in self.left_out.items())
        rows["source"] = "\n".join(
            value if name == "source" else f"{name.removeprefix('source file ')}  {value}"
            for name, value in self.source.items()
        )
        rows["files"] = "\n".join(f"{name}  {decimal(size)}" for name, size in self.files)
        rows["note"] = "\n".join(self.notes)
        return {name: value for name, value in rows.items() if value}

    def table(self) -> Table:
        """The rows as a rich table."""
        return summary_table(self.rows())


def info(
    where: str | Path,
    *,
    revision: str | None = None,
    token: str | None = None,
    tell: Callable[[str], None] = lambda sentence: None,
) -> CheckpointInfo:
    """What the checkpoint at `where` is.

    Args:
        where: a saved model's folder, a legacy checkpoint's folder or .zip (its data files may be missing), or the name
            of a repository on the Hub, of which only configuration, vocabulary, card and headers are fetched.
        revision: branch, tag or commit of the repository.
        token: where None, that of HF_TOKEN or of `hf auth login`.
        tell: is called with a sentence before the Hub is waited for.

    Raises:
        ValueError: one sentence, where there is nothing of the kind, or no revisions of it.
        HubError: one sentence, where the Hub cannot be asked.

    Example:
        >>> info("chinese_roformer-v2-char_L-12_H-768_A-12.zip").family
        'RoFormer-V2'
    """
    path = Path(where)
    if revision is not None and path.exists():
        raise ValueError(f"{where} is here, and only what is on the Hub has a revision ({revision!r}): leave it out")
    if path.is_dir():
        sizes = {file.relative_to(path).as_posix(): file.stat().st_size for file in _files(path)}
        return folder_info(path, sizes, str(where), path.resolve().name)
    if path.is_file():
        if path.suffix.lower() != ".zip":
            raise ValueError(f"{where} is a file: name the folder or the .zip that the checkpoint is in")
        with tempfile.TemporaryDirectory() as folder:
            try:
                sizes = unpack(path, Path(folder), lambda name: name in SMALL or name.endswith(INDEX))
                found = folder_info(Path(folder), sizes, str(where), name_of(path), unpacked=False)
            except (ValueError, OSError) as error:
                raise CheckpointError(str(error).replace(folder, str(where))) from None
            found.notes = [note.replace(folder, str(where)) for note in found.notes]
            return found
    if not _is_repository(str(where)):
        raise ValueError(f"{where} does not exist: name a folder, a .zip, or a repository on the Hub (OWNER/NAME)")
    from .hub_info import repository_info

    return repository_info(str(where), revision, token, tell)


def folder_info(folder: Path, sizes: dict[str, int], shown: str, name: str, unpacked: bool = True) -> CheckpointInfo:
    """What a folder holds, `sizes` of which says the files that belong to it; not all of them need to be there.

    `shown` is what the user calls it, `name` what it was published as (legacy_folder.name_of). With
    `unpacked=False` the data files of a legacy checkpoint are elsewhere, and need not be missed.
    """
    from .legacy_info import legacy_info
    from .saved_info import saved_info

    indices = sorted(file.removesuffix(INDEX) for file in sizes if file.endswith(INDEX) and "/" not in file)
    data = tuple(f"{prefix}.data-" for prefix in indices)
    keras = [
        file for file in sorted(sizes) if "/" not in file and not file.startswith(data) and _is_keras(folder / file)
    ]
    saved = [file for file in PYTORCH if file in sizes]
    config = next((folder / file for file in CONFIGS if file in sizes), None)
    files = sorted(sizes.items())
    if config is None:
        what = "it has weights, but no config.json" if saved or indices or keras else "it has no config.json or weights"
        raise ValueError(f"{shown} holds no checkpoint that is known: {what}")
    if saved or not (indices or keras):
        if config.name != "config.json" and not saved:
            raise ValueError(f"{shown} holds no checkpoint that is known: it has {config.name}, but no weights")
        found = saved_info(folder, config, saved[0] if saved else None, shown, name, unpacked)
    else:
        found = legacy_info(folder, config, (indices + keras)[0], shown, name, unpacked)
        if len(indices + keras) > 1:
            found.notes.append(f"it has several checkpoints, of which this is the first: {', '.join(indices + keras)}")
    found.files = files
    return found


def _files(folder: Path) -> list[Path]:
    """The files of a folder, but for hidden ones; those further down too, unless it is no checkpoint's."""
    below = folder.rglob("*") if any((folder / name).is_file() for name in CONFIGS) else folder.iterdir()
    return [
        file
        for file in sorted(below)
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    ]


def _is_keras(path: Path) -> bool:
    return path.is_file() and is_hdf5(path)


def _is_repository(name: str) -> bool:
    """Whether it can be OWNER/NAME; a name alone is more likely a folder that was mistyped."""
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return "/" in name


def _because(what: str | None, why: str | None) -> str | None:
    return f"{what} ({why})" if what and why else what or why


def _dtypes(counts: dict[str, int]) -> str:
    if len(counts) < 2:
        return "".join(counts)
    return ", ".join(f"{name} ({count:,})" for name, count in sorted(counts.items(), key=lambda item: -item[1]))


def _vocabulary(known: dict[str, object]) -> str | None:
    if not known:
        return None
    if known.get("unit") is None:
        return f"{known['entries']:,} entries"
    words = f"{known['words']:,} words among " if known["words"] else "no words among "
    return f"{known['unit']}-level: {words}{known['entries']:,} entries"


def _positions(known: dict[str, object]) -> str | None:
    more = [
        f"{name.replace('_', ' ')} {value}" for name, value in known.items() if name != "type" and value is not None
    ]
    return ", ".join([str(known["type"]), *more]) if known else None
