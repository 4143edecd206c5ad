"""A saved checkpoint's tokenizer of any class as a RoFormerTokenizer; the classes differ in word segmentation."""

from pathlib import Path

from modeling_roformer.output.console import no_warnings, sentence_of
from modeling_roformer.tokenization import RoFormerTokenizer

from ..errors import CheckpointError
from .legacy_folder import TOKENIZER, TOKENIZER_CONFIG
from .settings import read_fields
from .vocabulary import Vocabulary

# Classes, without "Fast", that split like this package's: into words, or into characters if there are no words.
CLASSES = (
    "BertTokenizer",
    "RoFormerTokenizer",
    "RoFormerWordTokenizer",
    "WoBertTokenizer",
    "PreTrainedTokenizer",
    "TokenizersBackend",
)
# Required values of arguments of BERT's tokenizers.
ARGUMENTS = {"do_basic_tokenize": True, "tokenize_chinese_chars": True}


def read_tokenizer(folder: Path) -> RoFormerTokenizer:
    """Read the tokenizer that BERT's, RoFormer's or WoBERT's class saved as vocab.txt or tokenizer.json.

    If no file says whether it lower-cases, it does not with a vocabulary that has capital letters.

    Raises CheckpointError, one sentence, if it has another class or cannot be read.
    """
    fields = read_fields(folder / TOKENIZER_CONFIG, default={}, encoding="utf-8")
    _check_class(folder / TOKENIZER_CONFIG, fields)
    try:
        with no_warnings("transformers.tokenization_utils_base"):  # that another class saved it, as is intended
            tokenizer = RoFormerTokenizer.from_pretrained(folder)
            says_nothing = "do_lower_case" not in fields and not (folder / TOKENIZER).exists()
            if says_nothing and tokenizer.do_lower_case and Vocabulary(folder, tokenizer.get_vocab()).is_cased:
                tokenizer = RoFormerTokenizer.from_pretrained(folder, do_lower_case=False)
    except Exception as error:  # of any kind, since transformers does not check these files before use
        raise CheckpointError(f"{folder} has a tokenizer that cannot be read: {sentence_of(error)}") from None
    return tokenizer


def _check_class(path: Path, fields: dict) -> None:
    name = fields.get("tokenizer_class") or "BertTokenizer"
    if name.removesuffix("Fast") not in CLASSES:
        raise CheckpointError(f"{path} names the tokenizer {name}, but only {', '.join(CLASSES)} can be converted")
    if name.startswith("Bert"):
        for argument, value in ARGUMENTS.items():
            if fields.get(argument, value) is not value:
                raise CheckpointError(f"{path}: {argument} is {fields[argument]}, which is not supported")


def written_anew(old: RoFormerTokenizer, entries: dict[str, int] | None = None, **changes: object) -> RoFormerTokenizer:
    """Return the same tokenizer, perhaps with other entries, without the settings of its former class, such as paths on
    its owner's disk."""
    words = old.backend_tokenizer.get_vocab(with_added_tokens=False)
    settings = {
        "do_lower_case": old.init_kwargs["do_lower_case"],
        "strip_accents": old.init_kwargs["strip_accents"],
        "word_segmentation": old.word_segmentation,
        "user_dict": old.user_dict,
        "add_sep_token": old.add_sep_token,
        "model_max_length": old.model_max_length,
        "padding_side": old.padding_side,
        "truncation_side": old.truncation_side,
        "mask_token": old.mask_token,  # None if the vocabulary has none
        **old.special_tokens_map,
        **changes,
    }
    new = RoFormerTokenizer(entries or dict(sorted(words.items(), key=lambda entry: entry[1])), **settings)
    for _, token in sorted(old.added_tokens_decoder.items()):
        if token.content not in new.get_added_vocab():
            new.add_tokens(token, special_tokens=token.special)
    new.extra_special_tokens = old.extra_special_tokens
    # If tokens were added in another order, their ids must be kept.
    return new if entries or new.get_vocab() == old.get_vocab() else old
