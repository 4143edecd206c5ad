"""The way back: a model that was trained here as a checkpoint that bert4keras and TensorFlow read."""

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from rich.table import Table
from transformers import PreTrainedConfig

from ..configuration import PAPER_ROPE, RoFormerConfig
from ..nezha_configuration import NezhaConfig
from ..output.output_folder import output_folder
from ..output.progress_bar import byte_progress
from ..output.summary import summary_table
from ..tokenization.tokenizer import RoFormerTokenizer
from ..tokenization.vocabulary import has_words, write_vocabulary
from .checkpoints.checkpoint import Checkpoint
from .checkpoints.exported import SPECIAL_TOKENS, TASK, added_tokens, exported_weights, model_on_meta, own_fields
from .checkpoints.pytorch_checkpoint import read_pytorch
from .errors import CheckpointError
from .families.family import Weight
from .families.registry import FAMILIES
from .families.wonezha import MAX_RELATIVE_POSITION
from .folder.legacy_folder import CONFIGS, VOCABULARY, legacy_files
from .folder.settings import ACTIVATIONS, OPTIONAL_SIZES, RATES, REQUIRED_SIZES
from .folder.vocabulary import read_vocabulary
from .formats.pytorch_files import is_pytorch
from .formats.tensor_bundle_writer import write_bundle

PREFIX = "bert_model.ckpt"
LANGUAGE_MODELS = ("ForMaskedLM", "ForCausalLM", "ForPreTraining", "LMHeadModel")  # what the names of classes end with
BERT4KERAS_EPSILON = 1e-12
# bert4keras' names of the families, and transformers' names of activations -> bert4keras'.
MODELS = {
    "roformer": "roformer",
    "gpt": "roformer",
    "sim": "roformer",
    "v2": "roformer_v2",
    "wobert": "bert",
    "wonezha": "nezha",
}
NAMES = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())} | {
    "gelu": "gelu", "gelu_new": "gelu_tanh", "swish": "swish",
}  # fmt: skip


@dataclass(frozen=True)
class ExportReport:
    """What was exported, and how bert4keras loads it.

    `call` and `tokenizer` are what is written in Python there; `task` names the variables of a task head, which bert4keras
    passes over; `notes` says what else there is to know.
    """

    source: Path
    output: Path
    title: str
    architecture: str
    call: str
    tokenizer: str
    variables: int
    parameters: int
    dtypes: list[str]
    task: list[str]
    notes: list[str]
    files: list[str]
    seconds: float

    def table(self) -> Table:
        """The summary as a rich table."""
        rows = {
            "source": str(self.source),
            "output": str(self.output),
            "model": f"{self.title}, {self.architecture}",
            "in bert4keras": self.call,
            "its tokenizer": self.tokenizer,
            "variables": str(self.variables),
            "parameters": f"{self.parameters:,}",
            "dtype": ", ".join(self.dtypes),
            "task head": ", ".join(self.task) + " (bert4keras passes over them)" if self.task else None,
            "note": "; ".join(self.notes) or None,
            "files": ", ".join(self.files),
            "seconds": f"{self.seconds:.1f}",
        }
        return summary_table(rows)


def export_tf(
    directory: str | Path, legacy_dir: str | Path, *, prefix: str = PREFIX, force: bool = False, progress: bool = False
) -> ExportReport:
    """Write a saved model in the original form: bert_config.json, vocab.txt and a TensorFlow checkpoint.

    Numbers and their formats stay as they are: `roformer convert` makes the same tensors of the result.

    Args:
        directory: a RoFormer, NEZHA or BERT with its tokenizer, as save_pretrained leaves it.
        legacy_dir: folder to make; nothing is there afterwards unless all went well.
        prefix: what the names of the checkpoint's files begin with.
        force: replace the saved model or the export at `legacy_dir`, in one step.
        progress: show a progress bar on stderr.

    Raises:
        CheckpointError: the model is damaged or incomplete, or bert4keras has nothing that computes the same.
        OSError: a file cannot be read or written; FileExistsError where `legacy_dir` is not empty and may not be replaced.

    >>> export_tf("roformer-mini-zh", "roformer-mini-tf").call
    "build_transformer_model('bert_config.json', 'bert_model.ckpt', model='roformer', with_mlm='linear')"
    """
    started = time.perf_counter()
    if not prefix or Path(prefix).name != prefix or prefix.startswith("."):
        raise ValueError(f"{prefix!r} is no name that files can begin with")
    origin, output = Path(directory), Path(legacy_dir).resolve()
    if not origin.exists():
        raise CheckpointError(f"{origin} does not exist: name the folder of a saved model")
    if output in (origin.resolve(), *origin.resolve().parents):
        raise FileExistsError(f"{output} is or holds the model to be exported: name a folder beside it")
    with output_folder(output, force) as folder, legacy_files(origin, None, unpack_beside=output) as files:
        if not is_pytorch(files.weights):
            raise CheckpointError(f"{files.weights} is of the original framework: there is nothing to export")
        checkpoint = read_pytorch(files)
        config, tokenizer = checkpoint.config, checkpoint.tokenizer
        _check_config(files.config, config)
        _check_tokenizer(origin, tokenizer)
        model = model_on_meta(config, config.architectures[0], files.config)
        weights = exported_weights(FAMILIES[checkpoint.family], config, model)
        has_language_model = config.architectures[0].endswith(LANGUAGE_MODELS)
        if getattr(config, "is_decoder", False) and not has_language_model:
            raise CheckpointError(
                f"{files.config} cannot be exported: is_decoder is true, and bert4keras has no decoder without the head of a "
                f"language model, as {config.architectures[0]} is"
            )

        _write_checkpoint(folder / prefix, checkpoint, weights, progress)
        fields = _fields(checkpoint)
        (folder / CONFIGS[0]).write_text(json.dumps(fields, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        unused = _write_vocabulary(folder / VOCABULARY, files.vocab, tokenizer, config.vocab_size)
        kinds = {
            weight.variable: checkpoint.source.entries[name].dtype for weight, name in _tensors(checkpoint, weights)
        }
        return ExportReport(
            source=origin,
            output=Path(legacy_dir),  # as it was asked for
            title=checkpoint.title,
            architecture=config.architectures[0],
            call=_call(checkpoint.family, config, prefix, weights, has_language_model),
            tokenizer=_tokenizer_call(tokenizer),
            variables=len(weights),
            parameters=sum(prod(weight.shape) for weight in weights),
            dtypes=sorted(set(kinds.values())),
            task=[weight.variable for weight in weights if weight.variable.startswith(TASK)],
            notes=_notes(tokenizer, has_language_model, unused),
            files=sorted(file.name for file in folder.iterdir()),
            seconds=time.perf_counter() - started,
        )


def _check_config(path: Path, config: PreTrainedConfig) -> None:
    """Raises CheckpointError, one sentence, where bert4keras would compute something else."""
    trouble = None
    if config.hidden_act not in NAMES:
        trouble = f"hidden_act is {config.hidden_act!r}, and bert4keras has {', '.join(ACTIVATIONS)}"
    elif config.layer_norm_eps != BERT4KERAS_EPSILON:
        trouble = f"layer_norm_eps is {config.layer_norm_eps!r}, and bert4keras has {BERT4KERAS_EPSILON!r}"
    elif not config.tie_word_embeddings:
        trouble = "tie_word_embeddings is false, and bert4keras ties them"
    elif getattr(config, "add_cross_attention", False):
        trouble = "add_cross_attention is true, which bert4keras does not have"
    elif isinstance(config, NezhaConfig) and config.max_relative_position != MAX_RELATIVE_POSITION:
        trouble = f"max_relative_position is {config.max_relative_position}, and bert4keras has {MAX_RELATIVE_POSITION}"
    elif getattr(config, "position_embedding_type", "absolute") != "absolute":
        trouble = f"position_embedding_type is {config.position_embedding_type!r}, which bert4keras does not have"
    elif getattr(config, "add_pooling_layer", False) and config.pooler_activation not in NAMES:
        trouble = f"pooler_activation is {config.pooler_activation!r}, and bert4keras has {', '.join(ACTIVATIONS)}"
    elif isinstance(config, RoFormerConfig):
        rope = config.rope_parameters or PAPER_ROPE
        if (config.norm_type == "rms_norm") == config.use_bias:
            trouble = f"norm_type {config.norm_type!r} with use_bias={config.use_bias} is no RoFormer of bert4keras'"
        elif config.norm_type == "rms_norm" and config.embedding_size != config.hidden_size:
            trouble = "embedding_size is not hidden_size, which no checkpoint of RoFormer-V2 has names for"
        elif any(rope[name] != PAPER_ROPE[name] for name in PAPER_ROPE):
            trouble = f"rope_parameters are {config.rope_parameters}, and bert4keras has the paper's only"
        else:
            on = next((name for name in ("rotary_value", "trainable_rope") if getattr(config, name)), None)
            trouble = on and f"{on} is true, which bert4keras does not have"
    if trouble:
        raise CheckpointError(f"{path} cannot be exported: {trouble}")


def _check_tokenizer(directory: Path, tokenizer: RoFormerTokenizer) -> None:
    trouble = None
    if tokenizer.user_dict:
        trouble = "its user_dict is no part of a checkpoint there: load it into jieba yourself, and export without it"
    elif tokenizer.word_segmentation is None and has_words(tokenizer.get_vocab()):
        trouble = "it does not use the words of its vocabulary (word_segmentation=None), which vocab.txt cannot say"
    elif tokenizer.init_kwargs["strip_accents"] not in (None, tokenizer.do_lower_case):
        trouble = f"bert4keras strips accents where it lower-cases, and do_lower_case is {tokenizer.do_lower_case}"
    else:
        for name, token in SPECIAL_TOKENS.items():
            if getattr(tokenizer, name) != token:
                trouble = f"its {name} is {getattr(tokenizer, name)}, and bert4keras has {token}"
    if trouble:
        raise CheckpointError(f"the tokenizer of {directory} cannot be exported: {trouble}")


def _tensors(checkpoint: Checkpoint, weights: list[Weight]) -> list[tuple[Weight, str]]:
    """Each weight with the name of its tensor in the source."""
    names = {weight.key: weight.variable for weight in checkpoint.plan.weights}
    return [(weight, names[weight.key]) for weight in weights]


def _write_checkpoint(prefix: Path, checkpoint: Checkpoint, weights: list[Weight], progress: bool) -> None:
    """Stream every tensor into the checkpoint, in the order of their names, as TensorFlow's own writer does."""
    source = checkpoint.source
    tensors = sorted(_tensors(checkpoint, weights), key=lambda pair: pair[0].variable.encode())
    with byte_progress(progress) as bar:
        task = bar.add_task("exporting", total=sum(source.entries[name].size for _, name in tensors))

        def arrays() -> Iterator[tuple[str, np.ndarray]]:
            for weight, name in tensors:
                array = source.read(name)
                yield weight.variable, array.T if weight.transpose else array
                bar.advance(task, source.entries[name].size)

        write_bundle(prefix, arrays(), dtype={weight.variable: source.entries[name].dtype for weight, name in tensors})
        for names in checkpoint.plan.extras.values():
            for name in names:
                source.check(name)


def _fields(checkpoint: Checkpoint) -> dict[str, object]:
    """bert_config.json: the original's fields, then those that only `roformer convert` reads."""
    config = checkpoint.config
    values = config.to_dict()
    original = {name: values[name] for name in (*REQUIRED_SIZES, *OPTIONAL_SIZES, *RATES) if name in values}
    original["hidden_act"] = NAMES[config.hidden_act]
    if isinstance(config, NezhaConfig):
        original["max_relative_position"] = config.max_relative_position
    return original | {
        "model_type": "roformer" if isinstance(config, RoFormerConfig) else config.model_type,
        "architectures": config.architectures[:1],
        **own_fields(checkpoint.family, config, checkpoint.tokenizer),
    }


def _write_vocabulary(path: Path, old: Path, tokenizer: RoFormerTokenizer, size: int) -> int:
    """vocab.txt with an entry for each row of the embeddings; how many of them no text has."""
    entries = tokenizer.get_vocab()
    unused = size - len(entries)
    if not unused and old.name == VOCABULARY and read_vocabulary(old).ids == entries:
        shutil.copyfile(old, path)
        return 0
    taken = sum(entry.startswith("[unused") for entry in entries)
    names = (f"[unused{number}]" for number in range(taken, taken + len(entries) + size))
    free = (name for name in names if name not in entries)
    write_vocabulary(entries | {next(free): number for number in range(size) if number not in entries.values()}, path)
    return unused


def _call(family: str, config: PreTrainedConfig, prefix: str, weights: list[Weight], has_language_model: bool) -> str:
    arguments = [f"'{CONFIGS[0]}'", f"'{prefix}'", f"model='{MODELS[family]}'"]
    if getattr(config, "prefix_lm", False):
        arguments.append("application='unilm'")
    elif getattr(config, "is_decoder", False):
        arguments.append("application='lm'")
    if any(weight.variable == "bert/pooler/dense/kernel" for weight in weights):
        activation = config.pooler_activation if isinstance(config, RoFormerConfig) else "tanh"
        arguments.append(f"with_pool='{NAMES[activation]}'")
    if has_language_model and "application='lm'" not in arguments:
        arguments.append("with_mlm='linear'")
    return f"build_transformer_model({', '.join(arguments)})"


def _tokenizer_call(tokenizer: RoFormerTokenizer) -> str:
    arguments = [f"'{VOCABULARY}'", f"do_lower_case={tokenizer.do_lower_case}"]
    if tokenizer.word_segmentation == "jieba":
        arguments.append("pre_tokenize=lambda text: jieba.cut(text, HMM=False)")
    return f"Tokenizer({', '.join(arguments)})"


def _notes(tokenizer: RoFormerTokenizer, has_language_model: bool, unused: int) -> list[str]:
    notes = []
    if added := [token.content for token in added_tokens(tokenizer).values()]:
        notes.append(f"bert4keras looks for no added tokens in texts: {', '.join(added)}")
    if not has_language_model:
        notes.append("there is no language model's head: with_mlm and application would miss its weights")
    if unused:
        notes.append(f"{unused} rows of the embeddings have no entry, and are called [unused…] in {VOCABULARY}")
    return notes
