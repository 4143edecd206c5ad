"""Checkpoints in the original form that this package made: what every weight of any class is called there.

A family's own weights have the names that its released checkpoints have, and so do BERT's pooler and next-sentence head.
What else a class has, its task head, is called `task/<key>`: bert4keras reads variables by name and passes over it, and
`roformer convert` finds it. bert_config.json says which class was exported, and the fields that only it has.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
import transformers
from transformers import BertConfig, PreTrainedConfig

import modeling_roformer

from .errors import CheckpointError
from .family import Family, Weight, dense
from .settings import Settings

MARK = "exported_from"
PACKAGE = "modeling_roformer"
TASK = "task/"
# Fields of a configuration that bert_config.json of the original has no name for.
FIELDS = (
    "is_decoder", "prefix_lm", "add_pooling_layer", "pooler_activation", "pad_token_id", "bos_token_id", "eos_token_id",
    "id2label", "label2id", "problem_type", "classifier_dropout", "classifier_layers", "classifier_activation",
    "triplet_scorer", "triplet_loss", "triplet_temperature", "triplet_margin", "sparse_prediction", "unpad_inputs",
    "summary_type", "summary_use_proj", "summary_proj_to_labels", "summary_activation", "summary_first_dropout",
    "summary_last_dropout", "tie_word_embeddings",
)  # fmt: skip
DO_LOWER_CASE = "do_lower_case"


def own_fields(config: PreTrainedConfig) -> dict[str, object]:
    """Those of `FIELDS` that are not as its class has them by default; of a decoder it is always said."""
    values, defaults = config.to_dict(), _defaults(type(config))
    return {
        name: values[name]
        for name in FIELDS
        if name in values and (name == "is_decoder" or values[name] != defaults.get(name))
    }


def _defaults(kind: type[PreTrainedConfig]) -> dict[str, object]:
    defaults = kind().to_dict()
    return {name: defaults[name] for name in FIELDS if name in defaults}


def model_on_meta(config: PreTrainedConfig, architecture: str, path: Path) -> "transformers.PreTrainedModel":
    """The class that a configuration (the file `path`) names, without numbers; only this package's, and BERT's."""
    kind = getattr(modeling_roformer, architecture, None)
    kind = kind or (getattr(transformers, architecture, None) if isinstance(config, BertConfig) else None)
    if (
        not isinstance(kind, type)
        or not issubclass(kind, transformers.PreTrainedModel)
        or kind.config_class is not type(config)
    ):
        raise CheckpointError(
            f"{path}: architectures names {architecture}, which is no class of modeling_roformer, nor a BERT of transformers"
        )
    try:
        with torch.device("meta"):
            return kind(config)
    except Exception as error:  # whatever a field of another value can cause
        raise CheckpointError(f"{path} describes no {architecture}: {' '.join(str(error).split())}") from None


def exported_weights(family: Family, config: PreTrainedConfig, model: "transformers.PreTrainedModel") -> list[Weight]:
    """Every weight of the class that is not tied to another, with the variable that it is exported as."""
    prefix, hidden = f"{model.base_model_prefix}.", config.hidden_size
    known = [
        *family.weights(config),
        *dense(f"{prefix}pooler.dense", "bert/pooler/dense", hidden, hidden),
        Weight("cls.seq_relationship.weight", "cls/seq_relationship/output_weights", (2, hidden)),
        Weight("cls.seq_relationship.bias", "cls/seq_relationship/output_bias", (2,)),
    ]
    variables = {weight.key: weight for weight in known}
    found = []
    for key, tensor in model.state_dict().items():
        if key in model.all_tied_weights_keys:
            continue
        weight = variables.get(key) or variables.get(prefix + key) or _task_weight(key, tuple(tensor.shape))
        found.append(replace(weight, key=key))
    return found


def _task_weight(key: str, shape: tuple[int, ...]) -> Weight:
    variable = TASK + key.replace(".", "/")
    if key.endswith(".weight") and len(shape) == 2:
        return Weight(key, f"{variable.removesuffix('weight')}kernel", shape[::-1], transpose=True)
    return Weight(key, variable, shape)


def exported_fields(settings: Settings) -> tuple[str, ...]:
    """The fields that mean something in a bert_config.json of this package's, and nothing in another's."""
    return (MARK, DO_LOWER_CASE, *FIELDS) if settings.ignored.get(MARK) == PACKAGE else ()


def as_exported(family: Family, settings: Settings) -> Family:
    """The family as this package exported it: its class, its fields, and its class's weights, all of them.

    Another's checkpoint is left as it is.
    """
    if settings.ignored.get(MARK) != PACKAGE:
        return family
    architecture = settings.ignored.get("architectures")
    if not isinstance(architecture, list) or not architecture or not isinstance(architecture[0], str):
        raise CheckpointError(
            f"{settings.path} was exported by {PACKAGE}, and does not say any more which class it was"
        )
    fields = {name: settings.ignored[name] for name in FIELDS if name in settings.ignored}

    def config(settings: Settings, vocabulary) -> PreTrainedConfig:
        made = family.config(settings, vocabulary)
        try:
            values = {**made.to_dict(), **_defaults(type(made)), **fields, "architectures": architecture[:1]}
            return type(made).from_dict(values)
        except Exception as error:  # of the checks of a configuration, whatever they are
            raise CheckpointError(f"{settings.path} describes no model: {' '.join(str(error).split())}") from None

    def weights(config: PreTrainedConfig) -> list[Weight]:
        return exported_weights(family, config, model_on_meta(config, architecture[0], settings.path))

    return replace(family, config=config, weights=weights, dropped={}, tokenizer=_tokenizer(family, settings.ignored))


def _tokenizer(family: Family, fields: Mapping[str, object]):
    lower_case = {} if fields.get(DO_LOWER_CASE, True) else {DO_LOWER_CASE: False}
    return lambda config: family.tokenizer(config) | lower_case
