"""`roformer export-nomic-bert`: write a saved encoder as a `nomic_bert` for servers of vectors."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from modeling_roformer.conversion.folder.legacy_folder import checked_output
from modeling_roformer.files.atomic_folder import output_folder
from modeling_roformer.files.reading import read_json
from modeling_roformer.model_cards.facts import vocabulary_of
from modeling_roformer.model_cards.servers import why_no_vectors_elsewhere, why_not_nomic_bert
from modeling_roformer.tokenization.vocabulary import has_words

from ..errors import ServingError
from ..model_folder import check_vocabulary, load_whole, named_when_unreadable
from ..pooling import PROMPTS, check_model, length_for_servers, modules_of, pooling_of
from ..prompts import prompts_of
from .card import CARD, card_of

if TYPE_CHECKING:
    from modeling_roformer import RoFormerConfig

TOKENIZER = "tokenizer_config.json"
# transformers has a nomic_bert of its own, with gates, whose weights it would initialise at random. It looks this up as
# an activation, and stops. The servers read activation_function.
NOT_TRANSFORMERS = "a folder for vLLM and text-embeddings-inference, which transformers cannot load"


def export_nomic_bert(
    directory: str | Path, output: str | Path, *, max_length: int | None = None, force: bool = False
) -> list[str]:
    """Write a saved encoder as a folder that vLLM and text-embeddings-inference serve, and return its modules.

    The folder has the original format of `nomic_bert` on the Hub, which has no gates and rotates halves of heads. Its
    hidden states are those of the model, since pairs of dimensions become halves in the rows of queries and keys.

    Args:
        directory: a RoFormer of version 1 with softmax attention, GELU and a character-level tokenizer.
        output: folder to create; it appears only if everything succeeds.
        max_length: maximum tokens of a text. The default is the model's `max_position_embeddings`, or less if its own
            files state less.
        force: replace the saved model at `output`, in one step.

    Raises:
        ServingError: the model is damaged or incomplete, or no `nomic_bert` has its numbers.
        OSError: a file cannot be read or written; FileExistsError if `output` is not empty and may not be replaced.
    """
    source = check_model(directory)
    config, settings = read_json(source / "config.json"), read_json(source / TOKENIZER, default={})
    described = (config, settings, has_words(vocabulary_of(source)))
    if reason := why_not_nomic_bert(*described):
        advice = "" if why_no_vectors_elsewhere(*described) else ": use `roformer export-onnx --vectors`"
        raise ServingError(f"{source} cannot be a nomic_bert: {reason}{advice}")
    prompts = prompts_of(source)
    target = checked_output(source, output)
    with output_folder(target, force) as folder:
        from safetensors.torch import save_file

        from modeling_roformer.registration import public_names, registered_transformers

        from ..sentence_vectors import SentenceVectors
        from .pooling import write_pooling
        from .weights import nomic_weights

        with named_when_unreadable(source):
            tokenizer = registered_transformers.AutoTokenizer.from_pretrained(source, local_files_only=True)
        needs_pooler = pooling_of(config) == "pooler" and not modules_of(source)
        options = {} if needs_pooler else {"add_pooling_layer": False}
        model = load_whole(public_names.RoFormerModel, source, dtype="auto", **options)
        check_vocabulary(source, tokenizer, model.config)
        vectors = SentenceVectors(source, model.config)
        if any(prompts.values()) and not vectors.pools_prompts:
            raise ServingError(
                f"{source} makes vectors without the tokens of its prompts (include_prompt), which servers do not tell "
                "from those of the text: compute them with `roformer embed`"
            )
        length = max_length or length_for_servers(source, tokenizer.model_max_length, model.config)
        modules = write_pooling(folder, source, vectors, model, length)
        weights = nomic_weights(model.state_dict(), model.config.num_attention_heads)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        write_config(folder, model.config, length)
        tokenizer.model_max_length = length
        tokenizer.save_pretrained(folder)
        name_general_tokenizer(folder / TOKENIZER)
        if modules_of(source) and (source / PROMPTS).is_file():
            shutil.copyfile(source / PROMPTS, folder / PROMPTS)
        (folder / CARD).write_text(card_of(source, folder, Path(output).name, modules, length), encoding="utf-8")
    return modules


def write_config(folder: Path, config: "RoFormerConfig", max_length: int) -> None:
    """Write config.json, with the names of fields that each server reads.

    `max_position_embeddings` is not among them: text-embeddings-inference refuses it beside `n_positions`.
    """
    theta = config.rope_parameters["rope_theta"]
    fields = {
        "model_type": "nomic_bert",
        "architectures": ["NomicBertModel"],
        "hidden_act": NOT_TRANSFORMERS,
        "activation_function": "gelu",
        "vocab_size": config.vocab_size,
        "type_vocab_size": config.type_vocab_size,
        "pad_token_id": config.pad_token_id,
        **dict.fromkeys(("n_embd", "hidden_size"), config.hidden_size),
        **dict.fromkeys(("n_layer", "num_hidden_layers"), config.num_hidden_layers),
        **dict.fromkeys(("n_head", "num_attention_heads"), config.num_attention_heads),
        **dict.fromkeys(("n_inner", "intermediate_size"), config.intermediate_size),
        **dict.fromkeys(("layer_norm_epsilon", "layer_norm_eps"), config.layer_norm_eps),
        **dict.fromkeys(("n_positions", "max_trained_positions"), max_length),
        **dict.fromkeys(("rope_theta", "rotary_emb_base"), theta),
        "rotary_emb_fraction": 1.0,
        "rotary_emb_interleaved": False,
        "rotary_emb_scale_base": None,
        "rotary_scaling_factor": None,
        **dict.fromkeys(("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"), True),
        **dict.fromkeys(("prenorm", "use_rms_norm", "causal", "parallel_block"), False),
        "dtype": str(config.dtype).removeprefix("torch."),
    }
    if config.pad_token_id is None:  # text-embeddings-inference reads a number or nothing
        del fields["pad_token_id"]
    (folder / "config.json").write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")


def name_general_tokenizer(path: Path) -> None:
    """Name the class that takes all of tokenizer.json: transformers' own RoFormerTokenizer needs a segmenter."""
    settings = read_json(path)
    special = {name: token for name, token in settings.items() if name.endswith("_token") and isinstance(token, str)}
    settings = special | {
        "model_max_length": settings["model_max_length"],
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    path.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
