"""Strict loading: missing, misshapen or unexpected weights of a backbone are errors, not only lines in a report."""

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from .pooler_copy import DENSE, has_pooler_copy, renew_pooler_copy
from .rotary import FREQUENCIES, OFFSET, offset_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self, TypeVar

    Function = TypeVar("Function", bound=Callable)

    def wraps(function: Function) -> Callable[[Callable], Function]: ...  # functools' hides the type
else:
    from functools import wraps

logger = logging.get_logger(__name__)
Model = PreTrainedModel if TYPE_CHECKING else object
ADAPTER = "adapter_config.json"
_SAVE_PRETRAINED = inspect.signature(PreTrainedModel.save_pretrained)


class ShapeMismatchError(ValueError, RuntimeError):
    """A weight whose shape the config does not imply. It is also a RuntimeError, as in transformers."""


class LoadedWhole(Model):
    """Mixin, listed before `PreTrainedModel`: loading never leaves random or outdated weights in the
    backbone."""

    if TYPE_CHECKING:
        config_class: type[PreTrainedConfig]

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, **kwargs) -> "Self":
        """Load a checkpoint as in transformers, but raise an error unless the backbone is complete.

        transformers initialises missing weights at random and lists them in a report; such a backbone computes garbage.
        A missing head, or cross-attention that is missing in all layers, is initialised at random, as in transformers;
        so is a head of other shapes with `ignore_mismatched_sizes=True`, for another number of labels. Calls with
        `output_loading_info=True` or a `state_dict` are left to transformers.

        Raises:
            ValueError: naming weights of the backbone that are missing, misshapen or unexpected.
        """
        if kwargs.get("output_loading_info") or kwargs.get("state_dict") is not None:
            return super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        options = {**kwargs, "output_loading_info": True, "ignore_mismatched_sizes": True}
        load: Any = super().from_pretrained
        model, report = load(pretrained_model_name_or_path, *args, **options)
        if model.has_pooler_weights(report, pretrained_model_name_or_path):
            # The roformer package writes a pooler's weights and activation, but neither a field for the pooler nor one
            # for the prefix mask of RoFormer-Sim, which is a decoder with a linear pooler.
            config = options["config"] = model.config
            config.add_pooling_layer = True
            if config.is_decoder and config.pooler_activation == "linear":
                config.prefix_lm = True
            args = args[1:] if args and isinstance(args[0], cls.config_class) else args
            model, report = load(pretrained_model_name_or_path, *args, **options)
        if kwargs.get("ignore_mismatched_sizes"):  # for a head with other labels, not for the backbone
            backbone = model._backbone_prefix()
            misshapen = {entry for entry in report["mismatched_keys"] if entry[0].startswith(backbone)}
            report = {**report, "mismatched_keys": misshapen}
        model.check_loaded(report, pretrained_model_name_or_path)
        model._warn_of_other_attention(pretrained_model_name_or_path, *args, **kwargs)
        return model

    @wraps(PreTrainedModel.save_pretrained)
    def save_pretrained(self, save_directory, *args, **kwargs):
        options = _SAVE_PRETRAINED.bind(self, save_directory, *args, **kwargs).arguments
        suffix = f".{options['variant']}" if options.get("variant") else ""
        folder = Path(save_directory)
        is_main = options.get("is_main_process", True)
        if is_main and not self._hf_peft_config_loaded and (folder / ADAPTER).is_file():
            raise ValueError(
                f"{folder} has an adapter ({ADAPTER}), which from_pretrained would apply to these weights, merged or "
                "not: save the model into a new folder, or delete the adapter first"
            )
        has_copy = is_main and has_pooler_copy(folder, folder / DENSE)
        whole, index = folder / f"model{suffix}.safetensors", folder / f"model.safetensors.index{suffix}.json"
        old_index, shards = None, _shards(folder, suffix)
        if is_main and not self._hf_peft_config_loaded and index.is_file():
            # While shards are replaced, the folder has shards of two models, and this index would join them.
            old_index = index.read_bytes()
            index.unlink()
        try:
            super().save_pretrained(save_directory, *args, **kwargs)
        except BaseException:
            if old_index is not None and not index.exists() and _shards(folder, suffix) == shards:
                index.write_bytes(old_index)
            raise
        finally:  # also if the folder is complete, but cannot be pushed
            # transformers removes the shards of an earlier save, but neither its index nor a single file, which
            # from_pretrained would then load in place of the new shards.
            if whole.exists() and index.exists() and not self._hf_peft_config_loaded:
                outdated = whole if any(folder.glob(f"model{suffix}-?????-of-?????.safetensors")) else index
                outdated.unlink(missing_ok=True)  # another process may have removed it
        if has_copy:
            renew_pooler_copy(folder)

    def has_pooler_weights(self, report: dict, source: str) -> bool:
        """Return whether the checkpoint has a pooler that the config lacks; raise an error without its activation."""
        prefix = f"{self.base_model_prefix}."
        if not any(name.removeprefix(prefix).startswith("pooler.") for name in report["unexpected_keys"]):
            return False
        if self.config.pooler_activation is None:
            raise ValueError(
                f"{source} has a pooler, but its config names no activation for it: pass "
                'pooler_activation="linear" for RoFormer-Sim, "tanh" for a pooler as in BERT'
            )
        return True

    def _warn_of_other_attention(self, source: str, *args, **kwargs) -> None:
        """Warn if the caller chose another attention than the weights were trained with; they load in any case."""
        config = kwargs.pop("config", None)
        given_config = any(isinstance(given, PreTrainedConfig) for given in (config, *args))
        if not given_config and "attention_type" not in kwargs and "linear_feature_map" not in kwargs:
            return
        try:
            saved, _ = self.config_class.get_config_dict(source, **kwargs)
        except OSError:  # weights without a config
            return
        trained, chosen = attention_name(saved), attention_name(vars(self.config))
        if trained != chosen:
            logger.warning_once(
                f"{source} was trained with {trained} attention, but is loaded with {chosen} attention: train it "
                "further before using it, for instance with examples/pretrain_mlm.py"
            )

    def tie_weights(self, missing_keys: set[str] | None = None, recompute_mapping: bool = True) -> None:
        """Tie as transformers does, and finish loading trainable frequencies.

        If two tied weights have wrong shapes in the checkpoint, one of them has no values yet. It counts as missing
        here: transformers would compare the two, and raise a NotImplementedError.
        """
        if missing_keys is not None:
            for pair in filter(missing_keys.isdisjoint, self.all_tied_weights_keys.items()):
                without_values = [name for name in pair if self.get_parameter(name).is_meta]
                if len(without_values) == 1:
                    missing_keys.update(without_values)
        super().tie_weights(missing_keys, recompute_mapping)
        encoder: Any = getattr(self.base_model, "encoder", None)
        config: Any = self.config
        # `from_pretrained`, which alone passes `missing_keys`, stores a file's values without `load_state_dict`.
        is_loaded = missing_keys is not None and not any(
            name.endswith(f"encoder.{FREQUENCIES}") for name in missing_keys
        )
        if is_loaded and hasattr(encoder, OFFSET):
            offset = offset_of(config, encoder.get_parameter(FREQUENCIES).data, f"encoder.{FREQUENCIES}")
            encoder.get_parameter(OFFSET).data.copy_(offset)

    def _backbone_prefix(self) -> str:
        """Return the start of the names of the backbone's weights: "" for a bare model."""
        return f"{self.base_model_prefix}." if hasattr(self, self.base_model_prefix) else ""

    def check_loaded(self, report: dict, source: str) -> None:
        """Raise a ValueError for a weight of the backbone that is missing or unexpected, or any misshapen weight, in
        transformers' report."""
        prefix, backbone = f"{self.base_model_prefix}.", self._backbone_prefix()
        missing = set(report["missing_keys"])
        drawn = {x for x in self.state_dict() if x.endswith(("feature_map.projection", "encoder.training_steps"))}
        cross = {x for x in self.state_dict() if ".crossattention." in x and not self.config.is_encoder_decoder}
        for new in (drawn, cross):  # Performer's random features, cross-attention of a new decoder
            if new <= missing:  # if only some are missing, the file is damaged
                missing -= new
        # Without trained frequencies, training begins with those of `rope_parameters`.
        optional = (f"encoder.{OFFSET}", f"encoder.{FREQUENCIES}")
        missing = sorted(name for name in missing if name.startswith(backbone) and not name.endswith(optional))
        unexpected = sorted(
            name
            for name in report["unexpected_keys"]
            if name.removeprefix(prefix).startswith(("embeddings", "encoder.", "decoder."))
        )
        if missing:
            raise ValueError(
                f"{source} has no weight for {_shorten(missing)}, and would be completed at random: to load the "
                f"{type(self).__name__} all the same, pass output_loading_info=True"
            )
        if report["mismatched_keys"]:
            # The backbone's come first: for them, ignore_mismatched_sizes is no remedy.
            order = sorted(report["mismatched_keys"], key=lambda entry: (not entry[0].startswith(backbone), entry[0]))
            name, shape, expected = order[0]
            is_head = not name.startswith(backbone)
            remedy = ", or pass ignore_mismatched_sizes=True to initialise the head at random" if is_head else ""
            raise ShapeMismatchError(
                f"{source} has {name} of shape {tuple(shape)}, but the config implies {tuple(expected)}: "
                f"correct the config{remedy}"
            )
        if unexpected:
            raise ValueError(
                f"{source} has {_shorten(unexpected)}, which its config has no place for: correct the config, or pass "
                "output_loading_info=True to leave such weights out"
            )


def _shards(folder: Path, suffix: str) -> dict[str, tuple[int, int]]:
    """Return the shards in a folder by name, with inode and time, which change when a shard is written."""
    status = {path.name: path.stat() for path in folder.glob(f"model{suffix}-?????-of-?????.safetensors")}
    return {name: (one.st_ino, one.st_mtime_ns) for name, one in status.items()}


def attention_name(fields: dict) -> str:
    """Return the name of a configuration's attention: softmax, or linear with its feature map."""
    if fields.get("attention_type", "softmax") == "softmax":
        return "softmax"
    before = ", rotated before it" if fields.get("linear_rotation") == "before" else ""
    return f"linear (linear_feature_map={fields.get('linear_feature_map', 'elu')!r}{before})"


def _shorten(names: list[str]) -> str:
    """Return the first name and the number of the others."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
