"""Check of the metadata at the top of a card, as the Hub does on a push, but without a connection.

`huggingface_hub.ModelCard.validate` asks the Hub. Its lists are public: licenses
(https://huggingface.co/docs/hub/repositories-licenses), tasks (https://github.com/huggingface/huggingface.js,
packages/tasks/src/pipelines.ts) and fields (https://github.com/huggingface/hub-docs, modelcard.md), as of August 2026.
"""

import difflib
import re

import yaml

# The second group is the metadata, between two rules at the top of a card.
YAML_BLOCK = re.compile(r"^(\s*---(?:\r\n|\r|\n))([\S\s]*?)((?:\r\n|\r|\n)---[ \t]*(\r\n|\n|$))")
LICENSES = """
    apache-2.0 mit openrail bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0 bigcode-openrail-m
    afl-3.0 artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear c-uda cc cc0-1.0 cc-by-2.0 cc-by-2.5
    cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0
    cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-sharing-1.0 cdla-permissive-1.0
    cdla-permissive-2.0 wtfpl ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2 agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0
    lgpl lgpl-2.1 lgpl-3.0 isc h-research intel-research lppl-1.3c ms-pl apple-ascl apple-amlr mpl-2.0 odc-by odbl
    openmdw-1.0 openmdw-1.1 openrail++ osl-3.0 postgresql ofl-1.1 ncsa unlicense zlib pddl lgpl-lr deepfloyd-if-license
    fair-noncommercial-research-license llama2 llama3 llama3.1 llama3.2 llama3.3 llama4 grok2-community gemma unknown
    other
    """
PIPELINE_TAGS = """
    text-classification token-classification table-question-answering question-answering zero-shot-classification
    translation summarization feature-extraction text-generation fill-mask sentence-similarity text-to-speech
    text-to-audio automatic-speech-recognition audio-to-audio audio-classification audio-text-to-text
    voice-activity-detection depth-estimation image-classification object-detection image-segmentation text-to-image
    image-to-text image-to-image image-to-video unconditional-image-generation video-classification
    reinforcement-learning robotics tabular-classification tabular-regression tabular-to-text table-to-text
    multiple-choice text-ranking text-retrieval time-series-forecasting text-to-video image-text-to-text
    image-text-to-image image-text-to-video visual-question-answering document-question-answering
    zero-shot-image-classification graph-ml mask-generation zero-shot-object-detection text-to-3d image-to-3d
    image-feature-extraction video-text-to-text keypoint-detection visual-document-retrieval any-to-any video-to-video
    other
    """
BASE_MODEL_RELATIONS = ["adapter", "merge", "quantized", "finetune"]
STRINGS = (
    "license_name", "license_link", "library_name", "pipeline_tag", "mask_token", "thumbnail", "base_model_relation",
    "new_version",
)  # fmt: skip
LISTS = ("tags", "widget")  # never a single value
STRING_LISTS = ("language", "license", "tags", "datasets", "metrics", "base_model")  # one string or a list of strings
REPOSITORIES = ("base_model", "datasets", "new_version")
# Two or three letters of ISO 639; BCP 47 has its own field, language_bcp47.
LANGUAGE = re.compile(r"[a-z]{2,3}|code|multilingual")


def check_metadata(card: str) -> None:
    """Raise ValueError, which names each bad field and its allowed values, if the Hub would refuse a card.

    A card without metadata passes, as on the Hub.

    >>> check_metadata("---\\nlicense: apache\\n---\\n")
    Traceback (most recent call last):
    ValueError: license is 'apache', which the Hub does not know; did you mean apache-2.0?
    """
    block = YAML_BLOCK.search(card)
    if block is None:
        return
    metadata = read_metadata(block[2])
    problems = list(_problems(metadata))
    if not problems and "model-index" in metadata:
        from huggingface_hub import ModelCardData

        try:
            ModelCardData(**metadata)
        except Exception as error:  # a malformed model-index can raise anything
            problems.append(f"model-index cannot be read ({type(error).__name__}: {_line(error)})")
    if problems:
        raise ValueError("; ".join(problems))


def read_metadata(block: str) -> dict:
    """Return the fields of the YAML between the two rules; raise ValueError if it is not YAML with fields."""
    try:
        metadata = yaml.load(block, _MetadataLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"the metadata is not YAML: {_line(error)}") from None
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise ValueError("the metadata must be fields (`name: value`)")
    return {str(key): value for key, value in metadata.items()}


class _MetadataLoader(yaml.SafeLoader):
    """YAML loader that refuses a field that appears twice, as the Hub does; PyYAML takes the second.

    It refuses aliases too: a few hundred bytes of them can stand for gigabytes of text.
    """

    def compose_node(self, parent, index):
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.composer.ComposerError(
                None,
                None,
                f"the alias *{event.anchor} stands for another place: write the value itself",
                event.start_mark,
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = next((key for number, key in enumerate(keys) if key in keys[:number]), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(None, None, f"{twice} appears twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _problems(metadata: dict):
    for name in STRINGS:
        if name in metadata and not isinstance(metadata[name], str):
            yield f"{name} is {metadata[name]!r}; expected a string"
    for name in LISTS:
        if name in metadata and not isinstance(metadata[name], list):
            yield f"{name} is {metadata[name]!r}; expected a list"
    for name in STRING_LISTS:
        for value in _strings(metadata, name):
            if not isinstance(value, str):
                # In YAML no, yes and 2.0 are not strings.
                yield f"{name} has {value!r}, which is not a string: put it in quotes"
    yield from _unknown(metadata, "license", LICENSES.split())
    yield from _unknown(metadata, "pipeline_tag", PIPELINE_TAGS.split())
    yield from _unknown(metadata, "base_model_relation", BASE_MODEL_RELATIONS)
    for value in _strings(metadata, "language"):
        if isinstance(value, str) and not LANGUAGE.fullmatch(value):
            allowed = "two or three lowercase letters of ISO 639 (zh, en), code or multilingual"
            yield f"language is {value!r}; expected {allowed} (BCP 47 goes into language_bcp47)"
    for name in REPOSITORIES:
        for value in _strings(metadata, name):
            if isinstance(value, str) and not is_repository(value):
                yield f"{name} is {value!r}; expected the name of a repository (OWNER/NAME)"


def _strings(metadata: dict, name: str) -> list:
    value = metadata.get(name)
    return [] if value is None else value if isinstance(value, list) else [value]


def _unknown(metadata: dict, name: str, known: list[str]):
    for value in _strings(metadata, name):
        if isinstance(value, str) and value not in known:
            near = difflib.get_close_matches(value.lower(), known, 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            yield f"{name} is {value!r}, which the Hub does not know{meant}"


def is_repository(name: str) -> bool:
    """Return whether a string can be the name of a repository on the Hub, without a connection."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return name.isascii()  # which huggingface_hub 1.31 does not check


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())
