"""One vocabulary for both languages: byte pair encoding, trained from the sentences themselves."""

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from ..errors import TrainingError

PAD, END = "<pad>", "</s>"
BYTES = 256


def train_tokenizer(sentences: Iterable[str], size: int, longest: int) -> PreTrainedTokenizerFast:
    """An ordinary fast tokenizer of byte-level pieces, which knows every character and gives back every text.

    Each text ends with `</s>`; `<pad>` fills batches, and begins what the decoder writes, as in Marian.

    Args:
        sentences: of both languages.
        size: entries of the vocabulary, at most.
        longest: tokens of a sentence.
    """
    if size < BYTES + 2:
        raise TrainingError(f"a vocabulary of {size:,} has no room for the {BYTES} bytes, {PAD} and {END}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=[PAD, END], initial_alphabet=sorted(alphabet), show_progress=True
    )
    tokenizer.train_from_iterator(sentences, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", pair=f"$A {END} $B {END}", special_tokens=[(END, tokenizer.token_to_id(END))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        model_max_length=longest,
        clean_up_tokenization_spaces=False,
    )
