"""Length of the texts that a model is trained on; its tokenizer is saved with it."""

import copy

import datasets
from transformers import PreTrainedTokenizerBase
from transformers.tokenization_utils_base import LARGE_INTEGER

from ..errors import TrainingError


def check_length(tokenizer: PreTrainedTokenizerBase, length: int, texts: int = 1, option: str = "--length") -> None:
    """Raise a TrainingError if a maximum length has no room for a token of each text.

    Args:
        tokenizer: the tokenizer, which adds special tokens.
        length: maximum number of tokens of an input.
        texts: texts in an input, 1 or 2.
        option: option that set the length, for the message.
    """
    special = tokenizer.num_special_tokens_to_add(pair=texts == 2)
    if length < special + texts:
        of = "the text" if texts == 1 else "each text"
        raise TrainingError(
            f"{option} is {length}; expected at least {special + texts}: {special} special tokens, and a token of {of}"
        )


def with_trained_length(tokenizer: PreTrainedTokenizerBase, length: int) -> PreTrainedTokenizerBase:
    """Return a copy of a tokenizer that truncates texts at the length of the training, or at its own length if that is
    longer. A tokenizer without a limit gets the length of the training."""
    tokenizer = copy.copy(tokenizer)
    own = tokenizer.model_max_length
    tokenizer.model_max_length = length if own >= LARGE_INTEGER else max(own, length)
    return tokenizer


def tokenize_parts(
    parts: datasets.DatasetDict, tokenizer: PreTrainedTokenizerBase, length: int
) -> datasets.DatasetDict:
    """Return the parts with the tokens of `text`, or of the pair `text` and `text_pair`, truncated at a length."""
    texts = [name for name in ("text", "text_pair") if name in parts["train"].column_names]
    options = {"truncation": True, "max_length": length}
    work = {"input_columns": texts, "remove_columns": texts, "fn_kwargs": options, "desc": "tokenizing"}
    return parts.map(tokenizer, batched=True, **work)
