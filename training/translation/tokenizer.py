"""One vocabulary for both languages of a translation model."""

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from ..errors import TrainingError

PAD, END = "<pad>", "</s>"
BYTES = 256
MAX_ENTRIES = 10_000_000  # tokenizers reserves memory for all, and ends the process if there is not enough


def train_translation_tokenizer(sentences: Iterable[str], size: int, max_length: int) -> PreTrainedTokenizerFast:
    """Train a fast tokenizer with at most `size` entries, by byte-level byte pair encoding. It can encode and restore
    any text.

    Each text ends with `</s>`. `<pad>` is the padding token, and the decoder's first token, as in Marian.

    Args:
        sentences: of both languages.
        size: from 258 to 10,000,000.
        max_length: maximum number of tokens of a sentence, as the tokenizer's `model_max_length`.

    Raises a TrainingError for another size.
    """
    if not BYTES + 2 <= size <= MAX_ENTRIES:
        raise TrainingError(
            f"a vocabulary of {size:,} is not possible: give {BYTES + 2} to {MAX_ENTRIES:,} as --vocabulary-size"
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])  # of the prefix
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=[PAD, END], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(sentences, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", pair=f"$A {END} $B {END}", special_tokens=[(END, tokenizer.token_to_id(END))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
    )
