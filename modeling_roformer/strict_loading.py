"""Loading a checkpoint whole or not at all: what transformers' report of a load says is checked, not only shown."""

from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

logger = logging.get_logger(__name__)


class ShapeMismatchError(ValueError, RuntimeError):
    """A weight has another shape than the config asks for; transformers raises a RuntimeError, and others catch that."""


class LoadedWhole:
    """A base of models, before `PreTrainedModel`, whose backbone is never filled up with random weights."""

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, **kwargs):
        """As in transformers, but that a backbone is loaded whole or not at all.

        transformers fills missing weights with fresh random ones and lists them in a report; a backbone loaded so
        answers garbage. Weights of a head that the checkpoint does not have are fresh, as everywhere. Callers that
        ask for the report (`output_loading_info=True`, `ignore_mismatched_sizes=True`) or bring their own
        `state_dict` get transformers' behaviour.

        Raises:
            ValueError: naming the weights of the backbone that are missing, of another shape, or that have no place.
        """
        report_is_asked_for = (
            kwargs.get("output_loading_info")
            or kwargs.get("ignore_mismatched_sizes")
            or kwargs.get("state_dict") is not None
        )
        if report_is_asked_for:
            return super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        quiet = {**kwargs, "output_loading_info": True, "ignore_mismatched_sizes": True}
        model, report = super().from_pretrained(pretrained_model_name_or_path, *args, **quiet)
        if model.has_pooler_weights(report, pretrained_model_name_or_path):
            # The roformer package writes a pooler's weights and activation, and no field that says there is one, nor one
            # that says of RoFormer-Sim, a decoder with a linear pooler, that it reads its prompt in both directions.
            config = quiet["config"] = model.config
            config.add_pooling_layer = True
            if config.is_decoder and config.pooler_activation == "linear":
                config.prefix_lm = True
            args = args[1:] if args and isinstance(args[0], cls.config_class) else args
            model, report = super().from_pretrained(pretrained_model_name_or_path, *args, **quiet)
        model.check_loaded(report, pretrained_model_name_or_path)
        model.say_where_attention_is_another(pretrained_model_name_or_path, *args, **kwargs)
        return model

    def has_pooler_weights(self, report: dict, source: str) -> bool:
        """Whether the checkpoint holds a pooler that the config did not announce; without its activation, an error."""
        prefix = f"{self.base_model_prefix}."
        if not any(name.removeprefix(prefix).startswith("pooler.") for name in report["unexpected_keys"]):
            return False
        if self.config.pooler_activation is None:
            raise ValueError(
                f"{source} has a pooler, but its config does not say which activation follows it: pass "
                'pooler_activation="linear" for RoFormer-Sim, "tanh" for a pooler as BERT has'
            )
        return True

    def say_where_attention_is_another(self, source: str, *args, **kwargs) -> None:
        """A warning where the caller chose another attention than the weights were trained with, which they fit as well."""
        config = kwargs.pop("config", None)
        given_config = any(isinstance(given, PreTrainedConfig) for given in (config, *args))
        if not given_config and "attention_type" not in kwargs and "linear_feature_map" not in kwargs:
            return
        try:
            saved, _ = self.config_class.get_config_dict(source, **kwargs)
        except OSError:  # there are weights alone
            return
        trained, chosen = attention_of(saved), attention_of(vars(self.config))
        if trained != chosen:
            logger.warning_once(
                f"{source} was trained with {trained} attention, and is loaded with {chosen} attention: its weights fit, but "
                "its answers mean little until it has been trained further (examples/pretrain_mlm.py does that)"
            )

    def missing_weights(self, report: dict) -> set[str]:
        """What the checkpoint lacks, but for Performer's random features where it has none at all, which are then drawn."""
        missing = set(report["missing_keys"])
        features = {
            name for name in self.state_dict() if name.endswith(("feature_map.projection", "encoder.training_steps"))
        }
        return missing - features if features <= missing else missing

    def check_loaded(self, report: dict, source: str) -> None:
        """Raises a ValueError that names what transformers' load report holds against the backbone."""
        prefix = f"{self.base_model_prefix}."
        backbone = prefix if hasattr(self, self.base_model_prefix) else ""
        missing = sorted(
            name
            for name in self.missing_weights(report)
            # Frequencies that are to be trained start where the formula has them.
            if name.startswith(backbone) and not name.endswith("encoder.inv_freq")
        )
        without_place = sorted(
            name
            for name in report["unexpected_keys"]
            if name.removeprefix(prefix).startswith(("embeddings", "encoder.", "decoder."))
        )
        if missing:
            raise ValueError(f"{source} has no weight for {_some(missing)}: {_not_whole(self)}")
        if report["mismatched_keys"]:
            name, found, expected = min(report["mismatched_keys"])
            raise ShapeMismatchError(
                f"{source} has {name} of shape {tuple(found)}, but the config implies {tuple(expected)}: "
                "correct the config, or pass ignore_mismatched_sizes=True to start such weights afresh"
            )
        if without_place:
            raise ValueError(
                f"{source} has {_some(without_place)}, which is not part of the model that its config describes"
            )


def attention_of(fields: dict) -> str:
    """What the fields of a configuration call their attention: softmax, or linear with its feature map."""
    if fields.get("attention_type", "softmax") == "softmax":
        return "softmax"
    before = ", rotated before it" if fields.get("linear_rotation") == "before" else ""
    return f"linear (linear_feature_map={fields.get('linear_feature_map', 'elu')!r}{before})"


def _not_whole(model: PreTrainedModel) -> str:
    return f"a {type(model).__name__} without it would answer at random (output_loading_info=True loads it regardless)"


def _some(names: list[str]) -> str:
    """The first of the names, and how many more there are."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
