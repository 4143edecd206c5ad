"""Prompts that sentence-transformers puts before texts, as in "query: " and "passage: ".

They are in config_sentence_transformers.json. `encode_query` takes the one called query, `encode_document` the one
called document, and `encode` the one that `default_prompt_name` names, if any.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from modeling_roformer.files.reading import read_json

from .errors import ServingError
from .pooling import PROMPTS, modules_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TASKS = ("query", "document")
DEFAULT = "default"  # for texts that are neither
# The documentation of sentence-transformers says that `encode_document` takes these as well; it does not (6.2).
_IGNORED_NAMES = ("passage", "corpus")


def prompts_of(folder: Path) -> dict[str, str]:
    """Return the prompts of a saved encoder for each of `TASKS` and for `DEFAULT`, each empty if there is none.

    Raises:
        ServingError: sentence-transformers makes vectors of them that are not supported, or they cannot be read.
    """
    # Without modules, sentence-transformers does not read the file.
    path, settings = folder / PROMPTS, read_json(folder / PROMPTS, default={}) if modules_of(folder) else {}
    stored = settings.get("prompts") or {}
    texts = dict.fromkeys(TASKS, "") | {name: prompt or "" for name, prompt in stored.items()}
    for name in _IGNORED_NAMES:
        if texts.get(name) and not texts["document"]:
            raise ServingError(
                f"{path} has a prompt {name!r} and none called 'document', the one that encode_document of "
                f"sentence-transformers takes: give {name!r} that name, or remove it"
            )
    default = settings.get("default_prompt_name")
    if default is not None and default not in texts:
        raise ServingError(f"{path}: default_prompt_name is {default!r}, but prompts has only {', '.join(texts)}")
    if texts.get(default) and default not in TASKS:
        raise ServingError(
            f"{path}: default_prompt_name is {default!r}, a prompt that is neither for queries nor for documents: "
            "compute the vectors with `encode` of SentenceTransformer, or name that prompt query and document"
        )
    return {**{task: texts[task] for task in TASKS}, DEFAULT: texts.get(default, "")}


def prompt_length(tokenizer: "PreTrainedTokenizerBase", prompt: str) -> int:
    """Return how many of the first tokens of a text belong to its prompt.

    As in sentence-transformers, these are [CLS] and the tokens of the prompt alone: with a text behind it, a prompt may
    end in another word.
    """
    if not prompt:
        return 0
    ids = tokenizer(prompt, verbose=False)["input_ids"]
    return len(ids) - (ids[-1] in tokenizer.all_special_ids)
