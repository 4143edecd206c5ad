"""The class of a model: the one that the configuration names, or the one for the task layer of a Keras model.

One Dense is supported: over [CLS] as a classification head without a hidden layer (or with the pooler as its hidden
layer), over the masked mean with one output as triplet matching, over every token as token classification. Its
activation belongs to the loss, not to the logits. The names of the layers around a Dense show its input. If they do
not, the error names the choices of --head: nothing is guessed.

Comments name the scripts whose checkpoints need a rule: `task_*.py` are the examples of bert4keras
(https://github.com/bojone/bert4keras/tree/master/examples), and folders are those of tests/fixtures/keras.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import CheckpointError
from ..families.family import BIDIRECTIONAL, MASKS, Family
from ..families.training_state import extra
from ..families.weights import MODEL, Weight, dense, weight
from ..folder.settings import ACTIVATIONS
from ..formats.source import Source

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

    from ..formats.keras_layers import KerasLayer, KerasModel

AUTO, NONE = "auto", "none"
CLASSIFICATION, TRIPLET, TOKENS = "classification", "triplet", "tokens"
# The pooler's activation, which is bert4keras' argument with_pool: True means tanh.
POOLERS = {"pooler": "tanh", "linear-pooler": "linear"}
HEADS = (AUTO, CLASSIFICATION, *POOLERS, TRIPLET, TOKENS, NONE)

_OTHER = "other"  # a layer that the classes here do not support
_POOLER = "bert/pooler/dense"
_LANGUAGE_MODEL = "cls/predictions/"
_BERTS = ("wobert", "wonezha")  # families whose pooler is BERT's, with tanh
_SIMS = ("sim", "simbert")  # families whose pooler is linear and belongs to the family
_OVER = {CLASSIFICATION: "over [CLS]", TRIPLET: "over the masked mean", TOKENS: "over every token"}
# Classes of layers that do not show what they do, so --head must: bert4keras' examples pick [CLS] by a Lambda, and
# tf.keras makes a SlicingOpLambda of `bert.output[:, 0]`. Files of weights alone have no classes ("").
_UNKNOWN = ("", "Lambda", "TFOpLambda", "SlicingOpLambda", "Activation", "Softmax")


# The supported model types, which are the prefixes of keys, and the prefixes of the names of their classes.
CLASSES = {"roformer": "RoFormer", "bert": "Bert", "nezha": "Nezha"}


def language_model(base: str, mask: str) -> str:
    """Return the class of a language model with a mask."""
    causal = "LMHeadModel" if base == "bert" else "ForCausalLM"
    return f"{CLASSES[base]}{'ForMaskedLM' if mask == BIDIRECTIONAL else causal}"


@dataclass(frozen=True)
class Head:
    """A task layer that fine-tuning put on a family's base model; it replaces the family's own head.

    `architecture` is the class that has it; `title` its name in the summary; `weights` are its own weights; `fields`
    its additional configuration fields. With `keeps_own` it is the family's own head in another class. `drops_prefix`
    is the key prefix that every class but the bare model has.
    """

    architecture: str
    title: str
    weights: list[Weight] = field(default_factory=list)
    fields: dict[str, object] = field(default_factory=dict)
    keeps_own: bool = False
    drops_prefix: str = ""

    def weights_on(self, family: list[Weight]) -> list[Weight]:
        """Return the weights of the model with this head, given those of the family with its own head."""
        body = [weight for weight in family if self.keeps_own or not weight.key.startswith("cls.")]
        own = {weight.variable for weight in self.weights}
        body = [weight for weight in body if weight.variable not in own]
        return [replace(weight, key=weight.key.removeprefix(self.drops_prefix)) for weight in body] + self.weights


@dataclass(frozen=True)
class Task:
    """The layer on top of an encoder: none (`kind` ""), or the layer `name`, a Dense with `classes` outputs.

    `kernel` and `bias` are its variables. `activation` is that of its outputs, `pooler_activation` that of the pooler
    (before the Dense, if there is one), if the file tells it. An `is_bare` model has neither a task layer nor a
    language-model head; `has_pooler` is true if it has a pooler. `mask` is the mask of its attention ("lm", "unilm" or
    "" for none; None if unknown), and `mask_layer` the name of its layer, if the file has one. `left_out` maps
    variables that are not converted to their kind in the summary.
    """

    kind: str = ""
    name: str = ""
    classes: int = 0
    kernel: str = ""
    bias: str = ""
    activation: str = ""
    pooler_activation: str | None = None
    over_pooler: bool = False
    is_bare: bool = False
    has_pooler: bool = False
    mask: str | None = None
    mask_layer: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)

    def family_variables(self, variables: Collection[str]) -> list[str]:
        """Return the variables that identify the family: a pooler below a task layer is not a sign of RoFormer-Sim."""
        has_task_layer = self.kind or self.left_out
        return [name for name in variables if not (has_task_layer and name.startswith(_POOLER))]

    def head(self, family: Family, mask: str, width: int, where: str) -> Head | None:
        """Return the class, its configuration and its weights; None if the family's own class is right.

        `mask` is the mask of the attention, and `width` that of the hidden states.

        Raises CheckpointError, which names the checkpoint as `where`, if no class of the family computes the same.
        """
        classes, model = CLASSES[family.base], family.base
        fields: dict[str, object] = {}
        # task_sentence_similarity_lcqmc.py with a RoFormer, and --head none: with_pool=True is tanh.
        if self.kind == "" and family.name in _SIMS and self.pooler_activation not in (None, "linear"):
            fields["pooler_activation"] = self.pooler_activation
        if self.kind == "" and not self.is_bare:  # task_seq2seq_autotitle.py has a UniLM mask
            if not fields and mask == family.mask:
                return None
            name = language_model("roformer", mask)
            return Head(name, f"none: a language model with {MASKS[mask]}", fields=fields, keeps_own=True)
        if self.kind == "":  # the encoder of SimCSE, and any model with --head none
            title, weights = "none: the encoder alone, without a language-model head", []
            if family.name in _BERTS and self.has_pooler and self.pooler_activation in (None, "tanh"):
                title += ", with BERT's pooler (tanh)"
                weights = dense("pooler.dense", width, width)
                fields |= {"add_pooling_layer": True} if classes != "Bert" else {}
                fields |= {"pooler_activation": "tanh"} if classes == "RoFormer" else {}
            elif classes == "Bert":
                title += ", and without a pooler: load it with add_pooling_layer=False"
            return Head(f"{classes}Model", title, weights, fields, drops_prefix=f"{model}.")
        if self.kind == TRIPLET and classes == "RoFormer":  # the paper's model of CAIL2019-SCM; triplet
            return Head("RoFormerForTripletMatching", self.title, self._dense("scorer", width), fields)
        fields["num_labels"] = self.classes
        if self.kind == TOKENS:  # task_sequence_labeling_ner_crf.py without its CRF; tokens
            return Head(f"{classes}ForTokenClassification", self.title, self._dense("classifier", width), fields)
        if self.problem_type:
            fields["problem_type"] = self.problem_type
        if self.kind == CLASSIFICATION and classes == "RoFormer":  # task_sentiment_albert.py with a RoFormer
            weights = self._dense("classifier.out_proj", width)
            if self.over_pooler:
                pooler = dense("pooler.dense", width, width)
                weights += [replace(each, key=each.key.replace("pooler", "classifier")) for each in pooler]
                fields["classifier_activation"] = self.pooler_activation
                # The pooler is the classifier's, of a SimBERT.
                fields |= {"add_pooling_layer": False, "pooler_activation": None}
            else:
                fields["classifier_layers"] = 1
            return Head("RoFormerForSequenceClassification", self.title, weights, fields)
        if self.over_pooler and self.pooler_activation == "tanh":  # task_sentence_similarity_lcqmc.py
            weights = dense(f"{model}.pooler.dense", width, width) + self._dense("classifier", width)
            fields |= {"add_pooling_layer": True} if classes == "Nezha" else {}
            return Head(f"{classes}ForSequenceClassification", self.title, weights, fields)
        remedy = "--head none leaves it out"
        if self.kind == CLASSIFICATION and not self.over_pooler:
            remedy = "--head tokens makes it a token-classification head, whose logits at [CLS] are the same"
        raise CheckpointError(f"{where} is a {family.title}, and {self.title} is not supported on it; {remedy}")

    @property
    def title(self) -> str:
        """The layer, and the input that it is applied to."""
        over = f"over the pooler ({self.pooler_activation})" if self.over_pooler else _OVER[self.kind]
        return f"{self.name}: Dense({self.classes}) {over}"

    @property
    def problem_type(self) -> str | None:
        """transformers' name for the loss that matches the outputs' activation, if that is known."""
        if self.activation == "softmax" and self.classes > 1:  # task_sentiment_albert.py
            return "single_label_classification"
        if self.activation == "sigmoid":  # scripts with binary_crossentropy
            return "multi_label_classification"
        return "regression" if self.activation == "linear" and self.classes == 1 else None

    def rows(self, head: Head | None) -> dict[str, str]:
        """Return the lines of the task layer in the summary."""
        if head is None:
            return {}
        rows = {"task layer": head.title}
        if self.kind:
            rows["its activation"] = f"{self.activation or 'not in the file'}; the logits are its inputs"
            if self.kind == CLASSIFICATION and not self.activation:
                rows["its activation"] += ", and problem_type chooses the loss"
        return rows

    def _dense(self, key: str, width: int) -> list[Weight]:
        kernel = Weight(f"{key}.weight", self.kernel, (width, self.classes), transpose=True)
        return [kernel, Weight(f"{key}.bias", self.bias, (self.classes,))]


def find_task(source: Source, choice: str = AUTO) -> Task:
    """Find the task layer on top of the encoder of a Keras model.

    Raises CheckpointError, one sentence that names the layers, if the input of a layer is unclear, if `choice`
    contradicts the file, or if no class here supports the layers.
    """
    model: KerasModel | None = getattr(source, "model", None)
    layers = [layer for layer in model.task_layers if layer.weights] if model else []
    if not layers and choice != NONE:
        check_no_choice(choice, source.path)
    # RoFormer-V2's language-model head has no weights of its own, so the variables do not show it.
    is_v2 = not any(name.startswith("bert/encoder/layer_") and name.endswith("/bias") for name in source.entries)
    has_pooler = any(name.startswith(_POOLER) for name in source.entries)
    if model is None:
        has_language_model = is_v2 or any(name.startswith(_LANGUAGE_MODEL) for name in source.entries)
        others = (name for name in source.entries if not name.startswith(MODEL) and extra(name, source.entries) is None)
        left_out = dict.fromkeys(others, "task layer") if choice == NONE else {}
        return Task(is_bare=not has_language_model, has_pooler=has_pooler, left_out=left_out)
    mask, mask_layer = (model.mask, model.mask_layer) if model.named else (None, "")
    pooler = next((layer for name, layer in model.own_layers.items() if name.endswith("Pooler-Dense")), None)
    pooler_activation = _activation(source, pooler) if pooler and pooler.activation else None
    if not layers or choice == NONE:
        has_language_model = model.has_language_model or (is_v2 and not model.named)
        left_out = {f"{layer.name}/{weight}": "task layer" for layer in layers for weight in layer.weights}
        return Task(
            is_bare=not has_language_model,
            has_pooler=has_pooler,
            pooler_activation=pooler_activation,
            mask=mask,
            mask_layer=mask_layer,
            left_out=left_out,
        )
    layer = layers[-1]
    weights = {name.rpartition("/")[2]: f"{layer.name}/{name}" for name in layer.weights}
    shapes = {kind: source.entries[name].shape for kind, name in weights.items()}
    is_dense = weights.keys() == {"kernel", "bias"} and len(layer.weights) == 2 and len(shapes["kernel"]) == 2
    if len(layers) > 1 or not is_dense or layer.kind not in ("", "Dense"):
        raise CheckpointError(
            f"{source.path} has unsupported task layers: {', '.join(layer.name for layer in layers)} (one Dense with a "
            "bias can be converted); --head none omits them"
        )
    kind, over_pooler = _application(source, model, layer, pooler, pooler_activation, choice)
    task = Task(
        kind=kind,
        name=layer.name,
        classes=shapes["kernel"][1],
        kernel=weights["kernel"],
        bias=weights["bias"],
        activation="" if _after(model, layer) else layer.activation,
        pooler_activation=POOLERS.get(choice, pooler_activation),
        over_pooler=over_pooler,
        mask=mask,
        mask_layer=mask_layer,
        left_out={name: "head of the language model" for name in source.entries if name.startswith(_LANGUAGE_MODEL)},
    )
    if task.kind == TRIPLET and task.classes != 1:
        raise CheckpointError(f"{source.path} has {task.title}, but triplet matching has one output; use --head none")
    return task


def check_no_choice(choice: str, path: Path) -> None:
    """Raise CheckpointError if a head is requested and the checkpoint has no Keras task layer."""
    if choice != AUTO:
        raise CheckpointError(f"{path} has no Keras task layer for --head {choice} to describe")


def _application(
    source: Source, model: KerasModel, layer: KerasLayer, pooler: KerasLayer | None, activation: str | None, choice: str
) -> tuple[str, bool]:
    """Return the kind of a Dense (CLASSIFICATION, TRIPLET or TOKENS), and whether its input is the pooler's output."""
    between, below = _before(source, model, layer)
    if pooler is not None and (layer.inputs is None or below is None):
        if choice not in POOLERS:
            raise CheckpointError(
                f"{source.path} does not say whether {pooler.name} feeds {layer.name}, or what its activation is: use "
                "--head pooler (with tanh, with_pool=True), --head linear-pooler (with_pool='linear') or --head none"
            )
        below, activation = pooler, POOLERS[choice]
    over_pooler = below is not None and below is pooler
    implied = {_kind_of_step(step) for step in between if not _is_dropout(step)}
    if over_pooler:
        # TensorFlow's format does not name the Dropout of task_sentence_similarity_lcqmc.py, so --head pooler says it.
        kind = CLASSIFICATION if not implied or (implied == {None} and choice in POOLERS) else _OTHER
    else:
        kind = TOKENS if not implied else implied.pop() if len(implied) == 1 else None
        kind = kind if below is not None else None
    names = _names(between)
    if kind == _OTHER:
        raise CheckpointError(
            f"{source.path} has {layer.name} after {names}, which is not supported; --head none omits it"
        )
    after = _after(model, layer)
    if any(_kind_of_step(step) is not None for step in after):
        raise CheckpointError(
            f"{source.path} has {_names(after)} after {layer.name}, which is not supported; use --head none"
        )
    if choice == AUTO and (kind is None or after):
        open_question = f"what {layer.name} is applied to (between the encoder and it: {names})"
        if kind is not None:
            open_question = f"what {_names(after)} does to the outputs of {layer.name}"
        raise CheckpointError(
            f"{source.path} does not say {open_question}: use --head classification (logits of [CLS]), --head triplet "
            "(of the masked mean), --head tokens (of every token) or --head none"
        )
    if choice in POOLERS:
        agrees = over_pooler and activation == POOLERS[choice]
    elif (choice, kind) == (TOKENS, CLASSIFICATION):  # bert_classification: a head over every token includes [CLS]
        agrees, kind = not over_pooler, TOKENS
    else:
        agrees = kind is None or choice in (AUTO, kind)
    if not agrees:
        over = f"over the pooler ({activation})" if over_pooler else _OVER.get(kind, "without a pooler")
        raise CheckpointError(f"{source.path} has {layer.name} {over} (after {names}), which is not --head {choice}")
    return kind or choice, over_pooler


def _names(steps: list[KerasLayer]) -> str:
    return ", ".join(step.name or "an unnamed layer" for step in steps) or "no other layer"


def _is_dropout(step: KerasLayer) -> bool:  # between pooler and Dense in task_sentence_similarity_lcqmc.py
    return "dropout" in f"{step.name}{step.kind}".lower()


def _after(model: KerasModel, layer: KerasLayer) -> list[KerasLayer]:
    """Return the layers after a task layer, which may compute its activation, or a loss."""
    return [step for step in model.task_layers[model.task_layers.index(layer) + 1 :] if not _is_dropout(step)]


def _before(source: Source, model: KerasModel, layer: KerasLayer) -> tuple[list[KerasLayer], KerasLayer | None]:
    """Return the layers between a model and one of its task layers, and the model's layer that they start from.

    If the file has no connections, all layers in between are returned, and they start from the encoder's end. The
    second is None if the connections do not lead to one layer.
    """
    end = model.own_layers[model.encoder_end]
    if layer.inputs is None:
        return model.task_layers[: model.task_layers.index(layer)], end
    steps, tasks, names = [], {step.name: step for step in model.task_layers}, layer.inputs
    while len(names) == 1 and names[0] in tasks and len(steps) < len(tasks):
        steps.insert(0, tasks[names[0]])
        names = steps[0].inputs or ()
    if len(names) != 1:
        return steps, None
    below = model.own_layers.get(names[0])
    if below is None:  # nested: scripts call bert.model on inputs of their own; its output may be of any layer
        return steps, end if not any(name.endswith("Pooler-Dense") for name in model.own_layers) else None
    if below is not end and not below.name.endswith("Pooler-Dense"):  # task_sequence_labeling_*.py name the layer
        raise CheckpointError(
            f"{source.path} has {layer.name} over {below.name}, not over the encoder's end; use --head none"
        )
    return steps, below


def _kind_of_step(step: KerasLayer) -> str | None:
    """Return the kind of head that a layer without weights implies for the Dense after it; None if unknown."""
    name = step.name.lower()
    # triplet; also scripts that pool for a classification, which is refused for its several outputs
    if step.kind == "GlobalAveragePooling1D" or (step.kind == "" and "global_average_pooling1d" in name):
        return TRIPLET
    if step.kind not in _UNKNOWN or "global_max_pooling1d" in name:  # TextCNN; crf has a layer with weights
        return _OTHER
    return CLASSIFICATION if "cls" in name else None  # Lambda(…, name="CLS-token") of task_sentiment_albert.py


def _activation(source: Source, layer: KerasLayer) -> str:
    if layer.activation not in ACTIVATIONS:
        raise CheckpointError(f"{source.path}: {layer.name} has the unsupported activation {layer.activation}")
    return ACTIVATIONS[layer.activation]


def model_on_meta(config: PreTrainedConfig, architecture: str, path: Path) -> PreTrainedModel:
    """Make the model that a configuration (the file `path`) names, on the meta device; only our classes and BERT's."""
    import torch

    from modeling_roformer.registration import public_names, registered_transformers

    is_bert = isinstance(config, registered_transformers.BertConfig)
    architecture_class = getattr(registered_transformers if is_bert else public_names, architecture, None)
    if getattr(architecture_class, "config_class", None) is not type(config):
        raise CheckpointError(
            f"{path}: architectures names {architecture}, which is neither in modeling_roformer nor a BERT of "
            "transformers"
        )
    with torch.device("meta"):
        return architecture_class(config)


def class_weights(model: PreTrainedModel) -> list[Weight]:
    """Return every untied weight of a model."""
    state = model.state_dict()
    return [weight(key, *tensor.shape) for key, tensor in state.items() if key not in model.all_tied_weights_keys]
