"""Which saved models become a graph, and what is loaded of them.

Nothing here imports torch before the model is loaded, so that a folder is refused at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...conversion.folder.legacy_folder import missing
from ...model_cards.kinds import architecture_of, kind_of
from ...output.console import no_transformers_bar, no_transformers_report, sentence_of
from ...tokenization.whole_file import read_json
from ..errors import ServingError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
VOCABULARIES = ("vocab.txt", "tokenizer.json")
# A file of protocol buffers, as ONNX is one, holds less than 2 GiB; the rest of it is room for the graph.
MOST_BYTES = 2**31 - 2**24
GENERATES = "writes text with a cache, one word after the other, which is not one graph: serve it with transformers"


@dataclass(frozen=True)
class SavedModel:
    """A folder that can be exported.

    `config` is its config.json. `architecture` is the class to load: the one that config.json names or, for a
    RoFormer-Sim, the bare model, whose pooled first token is the vector of a sentence (`leaves_language_model`).
    """

    folder: Path
    config: dict
    architecture: str
    leaves_language_model: bool = False


def saved_model(directory: str | Path) -> SavedModel:
    """What there is to export in a folder; raises ServingError, one sentence, if there is nothing."""
    folder = Path(directory)
    if not folder.exists():
        raise ServingError(missing(folder, "the folder of a saved model"))
    if not folder.is_dir():
        raise ServingError(f"{folder} is not a folder: name that of a saved model")
    try:
        config = read_json(folder / "config.json", default={})
    except ValueError as error:
        raise ServingError(str(error)) from None
    if not config:
        raise ServingError(f"{folder} has no config.json, so it is not a saved model")
    if not any((folder / name).is_file() for name in WEIGHTS):
        raise ServingError(f"{folder} has no weights ({WEIGHTS[0]}): save the model there first")
    if not any((folder / name).is_file() for name in VOCABULARIES):
        raise ServingError(f"{folder} has no tokenizer ({' or '.join(VOCABULARIES)}): save the model's tokenizer there")
    return SavedModel(folder, config, *_class_to_export(folder / "config.json", config))


def _class_to_export(path: Path, config: dict) -> tuple[str, bool]:
    """The name of the class, and whether it is the bare model of another."""
    if kind_of(config, word_level=False) is None:
        raise ServingError(
            f"{path}: model_type is {config.get('model_type')!r}, but only RoFormer, NEZHA and BERT are exported"
        )
    name = architecture_of(config)
    if name is None:
        raise ServingError(f"{path} does not say which class was saved: add its name there, in architectures")
    if name.endswith(("ForConditionalGeneration", "Seq2SeqModel")):
        raise ServingError(f"{path} names {name}, which {GENERATES}")
    writes = name.endswith(("ForCausalLM", "LMHeadModel"))
    if writes or (name.endswith("Model") and config.get("is_decoder")):
        if not (config.get("prefix_lm") and config.get("add_pooling_layer")):
            raise ServingError(f"{path} names {name}, a decoder: it {GENERATES}")
        return "RoFormerModel", writes
    return name, False


def load_tokenizer(saved: SavedModel) -> PreTrainedTokenizerBase:
    """The folder's tokenizer; raises ServingError if it cannot be read."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(saved.folder, local_files_only=True)
    except Exception as error:  # of any kind, since nothing in its files is checked before use
        raise ServingError(f"{saved.folder} has a tokenizer that cannot be read: {sentence_of(error)}") from None


def load_model(saved: SavedModel) -> PreTrainedModel:
    """The model in float32, on the CPU, in evaluation mode, giving what its class is for and nothing else.

    Raises ServingError if there is no such class, or the weights are not those of it.
    """
    import torch
    import transformers

    from ...registration import public_names as public

    kind = getattr(public, saved.architecture, None) or getattr(transformers, saved.architecture, None)
    if not (isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)):
        raise ServingError(
            f"{saved.folder / 'config.json'} names {saved.architecture}, which is no class of a model here"
        )
    only_answers = {"output_attentions": False, "output_hidden_states": False, "use_cache": False, "return_dict": True}
    with no_transformers_bar(), no_transformers_report():
        try:
            model, loading = kind.from_pretrained(
                saved.folder, dtype=torch.float32, local_files_only=True, output_loading_info=True
            )
        except Exception as error:  # of any kind, as damaged weights raise it
            raise ServingError(f"{saved.folder} cannot be loaded: {sentence_of(error)}") from None
    if absent := sorted(loading["missing_keys"]):
        more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        raise ServingError(
            f"{saved.folder} is not a whole {saved.architecture}: its weights lack {absent[0]}{more}; save the model again"
        )
    size = 4 * sum(parameter.numel() for parameter in model.parameters())
    if size > MOST_BYTES:
        raise ServingError(
            f"{saved.folder} has weights of {size / 1e9:.1f} GB in float32, and one file of ONNX holds "
            f"{MOST_BYTES / 1e9:.1f} GB: export a smaller model"
        )
    for name, value in only_answers.items():
        setattr(model.config, name, value)
    if hasattr(model.config, "unpad_inputs"):  # shapes that depend on a mask are not for graphs
        model.config.unpad_inputs = False
    return model.eval()
