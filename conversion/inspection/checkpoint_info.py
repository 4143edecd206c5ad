"""The facts about a checkpoint, for programs as JSON and for people as a table."""

import dataclasses
import json
from dataclasses import dataclass, field

from rich.filesize import decimal
from rich.table import Table

from modeling_roformer.output.console import summary_table


@dataclass
class CheckpointInfo:
    """The facts about a checkpoint; None, or empty, where unknown.

    `kind` is the kind of its files; `family` is its name, and `sign` the evidence for it. `converts_to` is the class of
    the model that `roformer convert` makes of it; None if it makes none, or need not. `parameters` counts those of the
    model, without computed tables and second copies of tied weights; `dtypes` counts them by dtype. `vocabulary`
    has `entries`, `words` and `unit`; `positions` has `type` and its properties. `trained_length`, in tokens, is that
    of the released checkpoint, of the table of positions, or of rope_parameters. `source` is the origin by the model
    card. `files` are pairs of name and bytes, and `notes` are sentences on parts that could not be read.
    """

    path: str
    kind: str
    family: str | None = None
    sign: str | None = None
    model_type: str | None = None
    architecture: str | None = None
    task: str | None = None
    converts_to: str | None = None
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
        """Return all facts for programs: an object with the fields' names as keys, and files as {name, size}."""
        content = dataclasses.asdict(self)
        content["files"] = [{"name": name, "size": size} for name, size in self.files]
        return json.dumps(content, ensure_ascii=False, indent=2)

    def rows(self) -> dict[str, str]:
        """Return all facts for people: the label and the text of each line of the table."""
        size = [f"{self.layers} layers x {self.hidden_size:,}"] if self.layers and self.hidden_size else []
        size += [f"{self.attention_heads} heads"] if self.attention_heads else []
        size += [f"feed-forward {self.feed_forward_size:,}"] if self.feed_forward_size else []
        size += [f"embeddings {self.embedding_size:,}"] if self.embedding_size else []
        rows = {
            "checkpoint": f"{self.path} ({self.kind})",
            "family": _because(self.family, self.sign),
            "class": _because(self.architecture, self.model_type and f"model_type {self.model_type}"),
            "task": self.task,
            "converts to": self.converts_to,
            "size": ", ".join(size),
            "parameters": self.parameters and f"{self.parameters:,}",
            "dtype": _dtypes(self.dtypes),
            "vocabulary": _vocabulary(self.vocabulary),
            "tokenizer": self.tokenizer,
            "positions": _positions(self.positions),
            "activation": self.activation,
            "trained at": f"up to {self.trained_length:,} tokens" if self.trained_length else None,
            "loads with": self.loads_with,
        }
        rows["besides the model"] = ", ".join(f"{name} ({count:,})" for name, count in self.left_out.items())
        rows["source"] = "\n".join(
            value if name == "source" else f"{name.removeprefix('source file ')}  {value}"
            for name, value in self.source.items()
        )
        rows["files"] = "\n".join(f"{name}  {decimal(size)}" for name, size in self.files)
        rows["note"] = "\n".join(self.notes)
        return {name: value for name, value in rows.items() if value}

    def table(self) -> Table:
        """Return the rows as a rich table."""
        return summary_table(self.rows())


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
