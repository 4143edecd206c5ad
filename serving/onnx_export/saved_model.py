"""Saved models that can be exported. They are checked without torch, so that a refusal takes no time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from modeling_roformer.model_cards.kinds import architecture_of, kind_of

from ..errors import ServingError
from ..model_folder import load_whole, named_when_unreadable, read_model_folder
from ..pooling import check_model, modules_of, pooling_of
from ..prompts import prompts_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# A protocol buffer, such as an ONNX file, has at most 2 GiB; 16 MiB of it are reserved for the graph.
MAX_WEIGHT_BYTES = 2**31 - 2**24
# model_type -> its bare model, where that is not RoFormerModel.
BARE = {"nezha": "NezhaModel", "bert": "BertModel"}


@dataclass(frozen=True)
class SavedModel:
    """A saved model that can be exported.

    `architecture` is the class to load: the class in config.json or, for RoFormer-Sim, the bare model without its
    language model (`leaves_language_model`), whose pooled first token is the sentence vector. If the graph returns
    vectors, it is the bare model, and `prompts` are those of `prompts_of`. They belong before the texts, and are not in
    the graph, which reads token ids.
    """

    folder: Path
    config: dict
    architecture: str
    leaves_language_model: bool = False
    prompts: dict[str, str] | None = None


def saved_model(directory: str | Path, vectors: bool = False) -> SavedModel:
    """Return the model of a folder; raise ServingError if it cannot be exported.

    Args:
        vectors: export the vectors of texts instead of the model's own outputs.
    """
    folder = check_model(directory) if vectors else Path(directory)
    config = read_model_folder(folder)
    architecture, leaves_language_model = _class_to_export(folder / "config.json", config)
    if vectors:
        bare = BARE.get(config["model_type"], "RoFormerModel")
        return SavedModel(folder, config, bare, prompts=prompts_of(folder))
    return SavedModel(folder, config, architecture, leaves_language_model)


def _class_to_export(path: Path, config: dict) -> tuple[str, bool]:
    """Return the name of the class, and whether it leaves out a language model."""
    if kind_of(config, word_level=False) is None:
        raise ServingError(
            f"{path}: model_type is {config.get('model_type')!r}; only RoFormer, NEZHA and BERT can be exported"
        )
    name = architecture_of(config)
    if name is None:
        raise ServingError(f"{path} has no architectures: add the name of the model's class there")
    is_language_model = name.endswith(("ForCausalLM", "LMHeadModel"))
    is_decoder = is_language_model or (name.endswith("Model") and config.get("is_decoder"))
    is_sim = config.get("prefix_lm") and config.get("add_pooling_layer")
    if name.endswith(("ForConditionalGeneration", "Seq2SeqModel")) or (is_decoder and not is_sim):
        raise ServingError(
            f"{path}: {name} generates text with a cache, which one graph cannot do: serve it with transformers"
        )
    return ("RoFormerModel", is_language_model) if is_decoder else (name, False)


def load_model(saved: SavedModel) -> PreTrainedModel:
    """Load the model in float32, on the CPU, in evaluation mode, without optional outputs.

    Raises:
        ServingError: there is no such class, or the weights do not fit it.
    """
    import torch

    from modeling_roformer.registration import public_names, registered_transformers

    library = public_names if hasattr(public_names, saved.architecture) else registered_transformers
    needs_pooler = pooling_of(saved.config) == "pooler" and not modules_of(saved.folder)
    options = {} if saved.prompts is None or needs_pooler else {"add_pooling_layer": False}
    with named_when_unreadable(saved.folder):
        model_class = getattr(library, saved.architecture)
    model = load_whole(model_class, saved.folder, dtype=torch.float32, **options)
    size = 4 * sum(parameter.numel() for parameter in model.parameters())
    if size > MAX_WEIGHT_BYTES:
        raise ServingError(
            f"{saved.folder} has {size / 1e9:.1f} GB of float32 weights, but an ONNX file holds at most "
            f"{MAX_WEIGHT_BYTES / 1e9:.1f} GB: export a smaller model"
        )
    config = model.config
    config.output_attentions = config.output_hidden_states = config.use_cache = False
    config.return_dict = True
    config.unpad_inputs = False  # as a graph computes padding
    return model.eval()
