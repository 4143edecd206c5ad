"""Folders that do not have a saved model, and what to do about them, in one sentence."""

import os
from contextlib import suppress
from pathlib import Path

from .reading import read_json

ADAPTER = "adapter_config.json"
# PEFT's name of a task -> the class of its base model.
_BASES = {
    "CAUSAL_LM": "AutoModelForCausalLM",
    "FEATURE_EXTRACTION": "AutoModel",
    "QUESTION_ANS": "AutoModelForQuestionAnswering",
    "SEQ_2_SEQ_LM": "AutoModelForSeq2SeqLM",
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "TOKEN_CLS": "AutoModelForTokenClassification",
}


def why_no_model(folder: Path) -> str | None:
    """Return the sentence that tells why a path is not the folder of a saved model.

    None if it has a config.json, and only regular files.
    """
    if not folder.exists():
        return f"{folder} does not exist: name the folder of a saved model (`roformer pull` fetches one from the Hub)"
    if not folder.is_dir():
        return f"{folder} is not a folder: name the folder of a saved model"
    if reason := special_file(folder):
        return reason
    if (folder / "config.json").is_file():
        return None
    if (folder / ADAPTER).is_file():
        return adapter_advice(folder)
    advice = "convert a checkpoint with `roformer convert`, or fetch a model with `roformer pull`"
    if (folder / "modules.json").is_file():  # before version 2
        advice = "sentence-transformers saved it in a subfolder: load it with SentenceTransformer and save it again"
    elif (folder / "model" / "config.json").is_file():  # the folder of a run
        advice = f"name {folder / 'model'}, which has one"
    return f"{folder} has no config.json, so it is not a saved model: {advice}"


def special_file(folder: Path) -> str | None:
    """Return the sentence that names a pipe, a socket or a device among the files of a model, or None.

    A pipe that nobody writes to would be read for ever, and others would be taken for missing files.
    """
    for pattern in ("[!.]*", "[!.]*/[!.]*"):  # hidden files are nobody's; others lie deeper, such as a run's
        for path in sorted(folder.glob(pattern)):
            if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
                return f"{path} is a pipe, a socket or a device: put a regular file there, or remove it"
    return None


def adapter_advice(folder: Path) -> str:
    """Return the sentence that tells how to merge an adapter of PEFT into its base model."""
    with suppress(ValueError, OSError):
        fields = read_json(folder / ADAPTER)
        mapping = fields.get("auto_mapping") or {}  # of an adapter without a task
        base = _BASES.get(str(fields.get("task_type"))) or mapping.get("base_model_class") or "AutoModel"
        source = f"{base}.from_pretrained({str(fields.get('base_model_name_or_path'))!r}{_labels(folder)})"
        return (
            f"{folder} has an adapter ({ADAPTER}) and no model: merge it into its base model with `model = "
            f"PeftModel.from_pretrained({source}, {str(folder)!r}).merge_and_unload()` and "
            "`model.save_pretrained('merged')`, and save the tokenizer there too"
        )
    return f"{folder} has an adapter and no model, and its {ADAPTER} cannot be read"


def _labels(folder: Path) -> str:
    """Return the argument for the number of labels of an adapter's classifier, which its base model may lack."""
    from safetensors import SafetensorError, safe_open

    with suppress(OSError, SafetensorError), safe_open(folder / "adapter_model.safetensors", "np") as weights:
        for name in weights.keys():  # noqa: SIM118, it is not a dict
            if name.endswith(("classifier.weight", "classifier.out_proj.weight")):
                return f", num_labels={weights.get_slice(name).get_shape()[0]}"
    return ""
