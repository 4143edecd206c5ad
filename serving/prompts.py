"""Prompts that sentence-transformers puts before texts, as in "query: " and "passage: ".

They are in config_sentence_transformers.json. `encode_query` takes the one called query, `encode_document` the one
called document, and `encode` the one that `default_prompt_name` names, if any.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from modeling_roformer.files.reading import read_json

from .errors import ServingError
from .pooling import modules_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TASKS = ("query", "document")
FILE = "config_sentence_transformers.json"
# The documentation of sentence-transformers says that `encode_document` takes these as well; it does not (6.2).
_IGNORED_NAMES = ("passage", "corpus")


@dataclass(frozen=True)
class Prompts:
    """Prompts of a model, each empty if there is none.

    `default` is for texts that are neither queries nor documents. `pooled` is False if the vector of a text leaves out
    the tokens of its prompt.
    """

    query: str = ""
    document: str = ""
    default: str = ""
    pooled: bool = True

    def __bool__(self) -> bool:
        return bool(self.query or self.document)

    def prompt_for(self, task: str) -> str:
        """Return the prompt for a query or a document."""
        return getattr(self, task)


def prompts_of(folder: Path, pooling: str) -> Prompts:
    """Return the prompts of a saved encoder.

    Args:
        pooling: kind of its vectors, as `pooling_of` returns it.

    Raises:
        ServingError: sentence-transformers makes vectors of them that are not supported, or they cannot be read.
    """
    modules, path = modules_of(folder), folder / FILE
    if not modules:  # sentence-transformers does not read the file then
        return Prompts()
    settings = read_json(path, default={})
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
    poolings = [read_json(place / "config.json") for name, place in modules if name == "Pooling"]
    pooled = all(settings.get("include_prompt", True) for settings in poolings)
    prompts = Prompts(texts["query"], texts["document"], texts.get(default, ""), pooled)
    if prompts and not pooled and pooling == "pooler":
        raise ServingError(
            f"{path} has prompts that the pooling leaves out (include_prompt), which the model's pooler cannot: compute"
            " the vectors with SentenceTransformer"
        )
    return prompts


def excluded_prompt_length(tokenizer: "PreTrainedTokenizerBase", prompts: Prompts, prompt: str) -> int:
    """Return how many of the first tokens the vector of a text with this prompt leaves out.

    As in sentence-transformers, these are [CLS] and the tokens of the prompt alone: with a text behind it, a prompt may
    end in another word.
    """
    if prompts.pooled or not prompt:
        return 0
    ids = tokenizer(prompt, verbose=False)["input_ids"]
    return len(ids) - (ids[-1] in tokenizer.all_special_ids)
