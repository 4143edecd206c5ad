"""Registration of RoFormer and NEZHA with transformers' Auto classes, and of the pipeline for triplets.

Every Auto class that knows "roformer" returns a class of this package or raises an error. None falls back to
transformers' own class, which computes some checkpoints wrongly.
"""

from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerFast
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.tokenization_auto import REGISTERED_TOKENIZER_CLASSES
from transformers.utils import is_torch_available

from modeling_roformer.auto_classes import TOKENIZER_NAMES, auto_model_classes
from modeling_roformer.configuration import RoFormerConfig
from modeling_roformer.nezha_configuration import NezhaConfig
from modeling_roformer.saved_fields import MODEL_TYPE, MODEL_TYPES
from modeling_roformer.seq2seq_configuration import RoFormerSeq2SeqConfig


def _refusing_class(auto_name: str, name: str) -> type:
    """Return a class that stands for a head that this package lacks, so that transformers' own is not used."""

    def refuse(cls, *args, **kwargs):
        raise ValueError(
            f"{auto_name} has no class for RoFormer: this version of modeling_roformer has no {name}, and "
            "transformers' own computes some checkpoints wrongly"
        )

    members = {
        "config_class": RoFormerConfig,
        "from_pretrained": classmethod(refuse),
        "_from_config": classmethod(refuse),
    }
    return type(name, (), members)


def register() -> None:
    """Register configurations, models, tokenizer and pipeline. Further calls change nothing."""
    AutoConfig.register(MODEL_TYPE, RoFormerConfig, exist_ok=True)
    for model_type in MODEL_TYPES:
        # AutoConfig.register allows one name per class.
        CONFIG_MAPPING.register(model_type, RoFormerConfig, exist_ok=True)
    for config_class in (NezhaConfig, RoFormerSeq2SeqConfig):
        AutoConfig.register(config_class.model_type, config_class, exist_ok=True)
    _register_tokenizer()
    if is_torch_available():
        _register_models()
        _register_pipelines()


def _register_tokenizer() -> None:
    from modeling_roformer.tokenization import RoFormerTokenizer

    for config_class in (RoFormerConfig, NezhaConfig):
        AutoTokenizer.register(config_class, tokenizer_class=RoFormerTokenizer, exist_ok=True)
    AutoTokenizer.register(RoFormerSeq2SeqConfig, tokenizer_class=PreTrainedTokenizerFast, exist_ok=True)
    # AutoTokenizer searches a saved name here before transformers' own classes.
    REGISTERED_TOKENIZER_CLASSES.update(dict.fromkeys(TOKENIZER_NAMES, RoFormerTokenizer))


def _register_models() -> None:
    served = auto_model_classes()
    others = {config_class: auto_model_classes(config_class) for config_class in (NezhaConfig, RoFormerSeq2SeqConfig)}
    for auto_class in vars(modeling_auto).values():
        mapping = getattr(auto_class, "_model_mapping", None)
        if not isinstance(auto_class, type) or mapping is None:
            continue
        ours = served.get(auto_class.__name__)
        theirs = mapping._model_mapping.get(MODEL_TYPE)
        if ours is None and theirs is not None:
            ours = _refusing_class(auto_class.__name__, theirs)
        if ours is not None:
            auto_class.register(RoFormerConfig, ours, exist_ok=True)
        for config_class, classes in others.items():
            if auto_class.__name__ in classes:
                auto_class.register(config_class, classes[auto_class.__name__], exist_ok=True)


def _register_pipelines() -> None:
    from transformers.pipelines import PIPELINE_REGISTRY

    from modeling_roformer.hub.remote_code import files_with_code
    from modeling_roformer.triplet_matching import AutoModelForTripletMatching
    from modeling_roformer.triplet_pipeline import TASK, TripletMatchingPipeline

    TripletMatchingPipeline.files_with_code = staticmethod(files_with_code)
    RoFormerConfig.installed_pipelines |= {TASK}
    PIPELINE_REGISTRY.supported_tasks.pop(TASK, None)  # registering a task again would warn
    PIPELINE_REGISTRY.register_pipeline(
        TASK, pipeline_class=TripletMatchingPipeline, pt_model=AutoModelForTripletMatching, type="text"
    )
