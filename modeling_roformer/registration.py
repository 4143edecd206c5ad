"""Makes transformers' Auto classes and pipelines use this package for RoFormer and NEZHA checkpoints.

Every Auto class that knows "roformer" gives a class of ours, or refuses by name: none falls back to transformers' own
class, which would answer wrongly for some checkpoints that ours reads.
"""

from transformers import AutoConfig, AutoTokenizer
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.tokenization_auto import REGISTERED_TOKENIZER_CLASSES
from transformers.utils import is_torch_available

from .auto_classes import TOKENIZER_NAMES, auto_model_classes
from .configuration import RoFormerConfig
from .model_types import MODEL_TYPE, MODEL_TYPES
from .nezha_configuration import NezhaConfig


def _refusing_class(auto_name: str, name: str) -> type:
    """Stands in for a head that this package lacks, so that transformers' own is not used in its place."""

    def refuse(cls, *args, **kwargs):
        raise ValueError(
            f"{auto_name} finds no class for RoFormer: this version of modeling_roformer has no {name}, and "
            "transformers' own would not compute every checkpoint that this package reads"
        )

    members = {
        "config_class": RoFormerConfig,
        "from_pretrained": classmethod(refuse),
        "_from_config": classmethod(refuse),
    }
    return type(name, (), members)


def register() -> None:
    """Registers configuration, models and tokenizer; called by `import modeling_roformer`, and harmless if repeated."""
    AutoConfig.register(MODEL_TYPE, RoFormerConfig, exist_ok=True)
    for model_type in MODEL_TYPES:
        # AutoConfig.register allows one name a class.
        CONFIG_MAPPING.register(model_type, RoFormerConfig, exist_ok=True)
    AutoConfig.register(NezhaConfig.model_type, NezhaConfig, exist_ok=True)
    _register_tokenizer()
    if is_torch_available():
        from .pipelines import register_pipelines

        _register_models()
        register_pipelines()
        _register_triplet_pipeline()


def _register_tokenizer() -> None:
    from .tokenization import RoFormerTokenizer

    for config_class in (RoFormerConfig, NezhaConfig):
        AutoTokenizer.register(config_class, tokenizer_class=RoFormerTokenizer, exist_ok=True)
    # AutoTokenizer looks for a saved name here first, before transformers' own classes.
    REGISTERED_TOKENIZER_CLASSES.update(dict.fromkeys(TOKENIZER_NAMES, RoFormerTokenizer))


def _register_models() -> None:
    served, nezha = auto_model_classes(), auto_model_classes(NezhaConfig)
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
        if auto_class.__name__ in nezha:
            auto_class.register(NezhaConfig, nezha[auto_class.__name__], exist_ok=True)


def _register_triplet_pipeline() -> None:
    from transformers.pipelines import PIPELINE_REGISTRY

    from .hub.remote_code import files_with_code
    from .triplet_matching import AutoModelForTripletMatching
    from .triplet_pipeline import TASK, TripletMatchingPipeline

    TripletMatchingPipeline.files_with_code = staticmethod(files_with_code)
    RoFormerConfig.installed_pipelines |= {TASK, "extractive-question-answering"}
    PIPELINE_REGISTRY.supported_tasks.pop(TASK, None)  # repeated registration would warn
    PIPELINE_REGISTRY.register_pipeline(
        TASK, pipeline_class=TripletMatchingPipeline, pt_model=AutoModelForTripletMatching, type="text"
    )
