"""Tokenizer of RoFormer, WoBERT and related models: jieba's words if the vocabulary has them, else WordPiece.

It is a fast tokenizer of transformers. These checkpoints were trained with bert4keras' `Tokenizer(vocab,
do_lower_case=True, pre_tokenize=lambda text: jieba.cut(text, HMM=False))`, and it returns the same ids.
"""

import glob
import json
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import accumulate, chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tokenizers import AddedToken, Encoding, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import BatchEncoding, PreTrainedTokenizerFast
from transformers.tokenization_utils_base import TruncationStrategy
from transformers.utils import PaddingStrategy, logging

from .decoding import join_tokens
from .encoding import AddedTokenSplitter, Assembler, LazyEncodings, Padding, Tokens, join_parts
from .segmentation import JiebaSegmenter, read_user_dict, split_by_callable, split_characters, words_to_find
from .vocabulary import (
    VocabularyError,
    check_same_entries,
    check_vocabulary,
    has_words,
    read_tokenizer_json,
    read_vocab_txt,
    write_vocabulary,
)
from .wordpiece import LONGEST_WORD, PREFIX, Normalizer, WordPiece

logger = logging.get_logger(__name__)

# Saved class name if transformers' own class would give other ids: one that transformers does not have.
_BEYOND_TRANSFORMERS = "RoFormerWordTokenizer"
# This message is saved as the truncation side, the only field whose value transformers checks and shows in an error:
# for an unknown class alone, AutoTokenizer would read tokenizer.json and give other ids.
_REFUSAL = "none: this tokenizer segments words as only the package modeling_roformer can; import it first"

_NAMED_WORDS = 5  # words that a warning names

# Files of an earlier tokenizer in the same folder that loading prefers to those that `save_pretrained` writes.
# transformers 4 saved special tokens and added tokens in files of their own.
_PREFERRED = (
    "added_tokens.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "additional_chat_templates/*.jinja",
    "tokenizer.json",
)

# There is a space between Latin words, but none beside a Chinese word.
_CHINESE = r"[\p{Han}\p{Hiragana}\p{Katakana}\u3000-\u303f\uff00-\uffef]"
_SPACE_BESIDE_CHINESE = rf"(?<={_CHINESE}) | (?={_CHINESE})"


# One or two sequences. Each is a text, or its words with `is_split_into_words`.
Sample = list[str | tuple[str, ...]]
Segment = Callable[[str], Iterable[str]]  # splits a text into words, in order


class RoFormerTokenizer(PreTrainedTokenizerFast):
    """Tokenizer of RoFormer checkpoints, word-level and character-level.

    Args:
        vocab: entry -> id, or the path of a vocab.txt.
        do_lower_case: lower-case, and strip accents unless `strip_accents` says otherwise.
        word_segmentation: "jieba" (the words of jieba without HMM), None (character level), or a callable that takes a
            normalized text and returns its words in order. "auto", the default, is "jieba" if the vocabulary has an
            entry of two or more Han characters, else None. It is saved; a callable is saved as "custom", and must be
            passed again when loading.
        user_dict: more words for jieba: the path of a jieba dictionary file, or a list of its lines ("word",
            "word 100", "word 100 n"). They are saved with the tokenizer. A warning names words that jieba never finds,
            and words that the vocabulary lacks, which are split into characters.
        tokenize_chinese_chars: ignored, as by transformers' RoFormerTokenizer: Han characters are always split.
        strip_accents: drop accents; None means the value of `do_lower_case`.
        add_sep_token: end texts with [SEP]; False for RoFormer-GPT, which continues its prompts. `bos_token` is then
            [CLS] and `eos_token` is [SEP] by default, for tools that ask for them.

    Raises:
        VocabularyError (a ValueError): [UNK] is missing, an entry occurs twice, word_segmentation is "jieba" and the
            vocabulary has no words, or vocab.txt and tokenizer.json of a folder differ.

    ```python
    tokenizer = RoFormerTokenizer.from_pretrained("roformer_chinese_base")
    tokenizer.tokenize("今天天气非常好。")   # ['今', '天', '天气', '非常', '好', '。']
    tokenizer("今天天气非常好。", return_offsets_mapping=True)
    ```
    """

    vocab_files_names = {"vocab_file": "vocab.txt", "tokenizer_file": "tokenizer.json"}
    model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    model = models.WordPiece

    if TYPE_CHECKING:

        @classmethod
        def from_pretrained(
            cls, pretrained_model_name_or_path: str | os.PathLike, *init_inputs: Any, **kwargs: Any
        ) -> Self: ...

        cls_token: str | None
        sep_token: str | None
        pad_token: str | None
        pad_token_id: int | None
        unk_token_id: int

    def __init__(
        self,
        vocab: Mapping[str, int] | str | os.PathLike | None = None,
        do_lower_case: bool | None = None,
        word_segmentation: str | Segment | None = "auto",
        user_dict: str | os.PathLike | Iterable[str] | None = None,
        unk_token: str | AddedToken = "[UNK]",
        sep_token: str | AddedToken | None = "[SEP]",
        pad_token: str | AddedToken | None = "[PAD]",
        cls_token: str | AddedToken | None = "[CLS]",
        mask_token: str | AddedToken | None = "[MASK]",
        tokenize_chinese_chars: bool = True,
        strip_accents: bool | None = None,
        add_sep_token: bool = True,
        **kwargs: Any,
    ):
        source, other_file = "the vocabulary", None
        if (backend := kwargs.pop("tokenizer_object", None)) is not None:
            vocab = backend.get_vocab(with_added_tokens=False)
        elif vocab is None and kwargs.get("tokenizer_file") is not None:
            source, other_file = kwargs["tokenizer_file"], kwargs.get("vocab_file")
            vocab, saved_lower_case, saved_strip_accents = read_tokenizer_json(source)
            do_lower_case = saved_lower_case if do_lower_case is None else do_lower_case
            strip_accents = saved_strip_accents if strip_accents is None else strip_accents
        elif vocab is None:
            vocab = kwargs.get("vocab_file")
        kwargs.pop("tokenizer_file", None)
        if isinstance(vocab, (str, os.PathLike)):
            source = os.fspath(vocab)
            vocab = read_vocab_txt(vocab)
        if vocab is None:
            raise VocabularyError("there is no vocabulary: pass vocab.txt or tokenizer.json")
        do_lower_case = True if do_lower_case is None else bool(do_lower_case)
        check_vocabulary(vocab, str(unk_token), source)

        self.user_dict = list(read_user_dict(user_dict))
        self.word_segmentation = word_segmentation
        self.add_sep_token = add_sep_token
        self._segment = self._choose_segmenter(vocab, source)
        self._normalizer = Normalizer(do_lower_case, do_lower_case if strip_accents is None else strip_accents)
        self._vocabulary = dict(vocab)
        self._tokenizer = _backend(self._vocabulary, str(unk_token), do_lower_case, strip_accents)
        if kwargs.get("truncation_side") == _REFUSAL:
            kwargs["truncation_side"] = kwargs.pop("saved_truncation_side", "right")
        if not add_sep_token:
            kwargs = {"bos_token": cls_token, "eos_token": sep_token} | kwargs

        super().__init__(
            do_lower_case=do_lower_case,
            word_segmentation=self.word_segmentation,
            user_dict=self.user_dict,
            unk_token=unk_token,
            sep_token=sep_token,
            pad_token=pad_token,
            cls_token=cls_token,
            mask_token=mask_token,
            tokenize_chinese_chars=tokenize_chinese_chars,
            strip_accents=strip_accents,
            add_sep_token=add_sep_token,
            **kwargs,
        )
        self._word_piece = WordPiece(
            self._vocabulary, self.unk_token_id, self._normalizer, self.word_segmentation is not None
        )
        self._make_splitters()
        if other_file is not None:  # another program may have saved another tokenizer there
            check_same_entries(self._vocabulary, source, self.get_vocab(), other_file)
        if self.user_dict:
            self._warn_of_user_words()

    def _warn_of_user_words(self) -> None:
        """Warn once of the words of user_dict that jieba never finds, and once of those that have no entry."""
        added, entries = self.get_added_vocab(), self.get_vocab()
        words = [word for word in words_to_find(self.user_dict) if word not in added]
        # jieba splits a word in every text if it splits the word alone: its parts are the likelier path.
        never = {word: repr(word) for word in words if list(self._segment(self._normalizer(word))) != [word]}
        if never:
            logger.warning_once(
                f"jieba never finds {len(never)} of the {len(words)} words of user_dict: "
                f"{_first_words(never.values())}. It reads {'lower-cased ' * self.do_lower_case}text, splits it at all "
                "characters but Chinese characters, ASCII letters, digits and +#&._%-, and does not find words of too "
                "low a frequency. Change the words, remove them, or use add_tokens"
            )
        lacking = [word for word in words if word not in entries and word not in never]
        if lacking:
            logger.warning_once(
                f"the vocabulary lacks words of user_dict: {_first_words(lacking)}. They are split into characters or "
                "pieces, where jieba alone may find shorter words of the vocabulary: remove them from user_dict, or "
                "use a vocabulary with them"
            )

    def _choose_segmenter(self, vocab: Iterable[str], source: str) -> Segment:
        """Return the function that splits a normalized text into words, and set `word_segmentation` to its name."""
        chosen = self.word_segmentation
        if self.user_dict and (callable(chosen) or chosen is None):
            raise ValueError("user_dict adds words to jieba, so it needs word_segmentation='jieba'")
        if callable(chosen):
            self.word_segmentation = "custom"
            return partial(split_by_callable, chosen)
        if chosen is None:
            return split_characters
        if chosen not in ("auto", "jieba"):
            raise ValueError(
                f"word_segmentation is {chosen!r}; expected 'auto', 'jieba', None or a callable. A callable is saved "
                "as 'custom', and must be passed again"
            )
        words = has_words(vocab)
        if not words and (chosen == "jieba" or self.user_dict):
            raise VocabularyError(
                f"word_segmentation='jieba' needs a vocabulary of words, but {source} has no entry of two or more Han "
                "characters: use word_segmentation=None for a character vocabulary"
            )
        self.word_segmentation = "jieba" if words else None
        return JiebaSegmenter(tuple(self.user_dict)) if words else split_characters

    @property
    def do_lower_case(self) -> bool:
        """True if texts are lower-cased; set when the tokenizer is made."""
        return self._normalizer.lowercase

    # Loading and saving

    @classmethod
    def convert_to_native_format(cls, trust_remote_code: bool = False, **kwargs: Any) -> dict[str, Any]:
        """Return the arguments unchanged: `__init__` reads the vocabulary from the files itself."""
        return kwargs

    def update_post_processor(self) -> None:
        """Set the template to [CLS] A [SEP], and [CLS] A [SEP] B [SEP] with segments 0 and 1.

        Without `add_sep_token` the last [SEP] is left out.
        """
        self._add_bos_token = self._add_eos_token = False  # [CLS] and [SEP] take their place
        cls, sep = self.cls_token, self.sep_token
        start, between = f"{cls}:0 " if cls else "", f" {sep}:{{}}" if sep else ""
        end = between if self.add_sep_token else ""
        self._tokenizer.post_processor = processors.TemplateProcessing(
            single=start + "$A:0" + end.format(0),
            pair=start + "$A:0" + between.format(0) + " $B:1" + end.format(1),
            special_tokens=[
                (token, self.convert_tokens_to_ids(token)) for token in dict.fromkeys([cls, sep]) if token is not None
            ],
        )

    def save_pretrained(
        self,
        save_directory: str | os.PathLike,
        legacy_format: bool | None = None,
        filename_prefix: str | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[str, ...]:
        """Save as in transformers, in place of an earlier tokenizer in the folder.

        In between, vocab.txt and tokenizer.json are of two tokenizers. If the process is killed then, loading refuses
        the folder unless both have the same vocabulary.
        """
        start = os.path.join(save_directory, f"{filename_prefix}-" if filename_prefix else "")
        if any(os.path.isfile(start + name) for name in self.vocab_files_names.values()):
            if legacy_format:
                self.save_vocabulary(os.fspath(save_directory), filename_prefix)
            else:
                self._tokenizer.save(start + self.vocab_files_names["tokenizer_file"])
        return super().save_pretrained(save_directory, legacy_format, filename_prefix, *args, **kwargs)

    # tokenizer.json is always WordPiece over the same vocabulary, whatever the segmentation, so that transformers' own
    # class, which segments by itself, can read it. With `legacy_format=True` it is not written, for programs that would
    # read it and not segment; from vocab.txt alone transformers' own class finds no words, so it must refuse.
    def _save_pretrained(
        self,
        save_directory: str | os.PathLike,
        file_names: tuple[str, ...],
        legacy_format: bool | None = None,
        filename_prefix: str | None = None,
    ) -> tuple[str, ...]:
        changes: dict[str, Any] = {}
        # From the same files transformers' RoFormerTokenizer would give other ids in these cases.
        beyond = self.user_dict or self.word_segmentation == "custom" or not self.add_sep_token
        beyond = beyond or (self.word_segmentation is None and has_words(self._vocabulary))
        if beyond or (legacy_format and self.word_segmentation is not None):
            changes["tokenizer_class"] = _BEYOND_TRANSFORMERS
            changes["saved_truncation_side"] = self.truncation_side
            changes["truncation_side"] = _REFUSAL
        if legacy_format:
            added = self.added_tokens_decoder.items()  # in the form of transformers, which writes these states itself
            changes["added_tokens_decoder"] = {number: token.__getstate__() for number, token in added}
        if changes:
            config_file = Path(file_names[0])
            config = json.loads(config_file.read_text(encoding="utf-8")) | changes
            content = json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
            config_file.write_text(content, encoding="utf-8")
        if legacy_format:
            file_names += self.save_vocabulary(os.fspath(save_directory), filename_prefix)
        else:
            file_names = super()._save_pretrained(save_directory, file_names, legacy_format, filename_prefix)
        _remove_all_but(file_names, save_directory, filename_prefix)
        if not legacy_format:
            file_names += self.save_vocabulary(os.fspath(save_directory), filename_prefix)
        return file_names

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str]:
        """Write vocab.txt, and return its path in a tuple."""
        name = (filename_prefix + "-" if filename_prefix else "") + self.vocab_files_names["vocab_file"]
        path = os.path.join(save_directory, name)
        write_vocabulary(self._vocabulary, path)
        return (path,)

    def train_new_from_iterator(self, *args: Any, **kwargs: Any) -> PreTrainedTokenizerFast:
        """Train a new character-level tokenizer as in transformers.

        Its vocabulary has pieces of Latin words and single Han characters. A word-level tokenizer is refused: the new
        one would have no Chinese words.
        """
        if self.word_segmentation is not None:
            raise ValueError(
                "train_new_from_iterator cannot learn Chinese words, which this tokenizer segments: make a vocabulary "
                "by `roformer vocab`, or load the tokenizer with word_segmentation=None to train one of characters"
            )
        return super().train_new_from_iterator(*args, **kwargs)

    # From text to tokens

    def _tokens(self, text: str, with_offsets: bool) -> Tokens:
        """Return the `Tokens` of a text without added tokens."""
        if not with_offsets:
            words = self._segment(self._normalizer(text))
            return Tokens(list(chain.from_iterable(map(self._word_piece.ids.__getitem__, words))))
        normalized, origins = self._normalizer.align(text)
        words = list(self._segment(normalized))
        ids = list(chain.from_iterable(map(self._word_piece.ids.__getitem__, words)))
        offsets, numbers, number = [], [], 0
        starts = accumulate(map(len, words), initial=0)
        for at, (count, spans) in zip(starts, map(self._word_piece.spans.__getitem__, words), strict=False):
            for start, end, k in spans:
                offsets.append((at + start, at + end))
                numbers.append(number + k)
            number += count
        if origins is not None:
            offsets = [(origins[start], origins[end - 1] + 1) for start, end in offsets]
        return Tokens(ids, offsets, numbers)

    def _add_tokens(self, new_tokens: list[str | AddedToken], special_tokens: bool = False) -> int:
        number = super()._add_tokens(new_tokens, special_tokens)
        self._make_splitters()
        return number

    def _make_splitters(self) -> None:
        """Make the splitters at added tokens, by the value of `split_special_tokens`."""
        added = self.added_tokens_decoder
        ordinary = {number: token for number, token in added.items() if not token.special}
        self._splitters = {
            False: AddedTokenSplitter(added, self._normalizer),
            True: AddedTokenSplitter(ordinary, self._normalizer),
        }

    def _encode_sequence(
        self, sequence: str | tuple[str, ...], splitter: AddedTokenSplitter, with_offsets: bool
    ) -> Tokens:
        """Return the `Tokens` of a text, or of a list of words, whose offsets are then relative to each word."""
        if not isinstance(sequence, str):
            parts = [self._encode_sequence(word, splitter, with_offsets) for word in sequence]
            ids, offsets, _ = map(list, map(chain.from_iterable, zip(*parts, strict=True))) if parts else ([], [], [])
            return Tokens(ids, offsets, [number for number, part in enumerate(parts) for _ in part.offsets])
        parts = splitter(sequence)
        if parts is None:
            return self._tokens(sequence, with_offsets)

        def tokens(added: int | None, start: int, end: int) -> Tokens:
            if added is None:
                return self._tokens(sequence[start:end], with_offsets)
            return Tokens([added], [(0, end - start)], [0]) if with_offsets else Tokens([added])

        return join_parts([(tokens(added, start, end), start) for added, start, end in parts])

    # From tokens to text

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        """Return the text of tokens, by the rules of `decoding.join_tokens`."""
        return join_tokens(tokens)

    def _decode(
        self,
        token_ids: Any,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
        **kwargs: Any,
    ) -> str:
        """Decode one sequence of ids: `convert_tokens_to_string` of its tokens.

        `clean_up_tokenization_spaces=False` returns the text that the saved tokenizer.json gives, with a space on both
        sides of every mark that is not Chinese, except before . , ? ! behind a word.
        """
        if token_ids is None:
            raise ValueError(
                "token_ids is None; expected ids. If it is an eos_token_id or a bos_token_id: only the tokenizers of "
                "RoFormer-GPT have them, so set eos_token and bos_token of this one, or use a RoFormer-GPT"
            )
        if clean_up_tokenization_spaces is False:
            return super()._decode(token_ids, skip_special_tokens, clean_up_tokenization_spaces, **kwargs)
        if isinstance(token_ids, dict):
            token_ids = token_ids["input_ids"]
        if isinstance(token_ids, int):
            token_ids = [token_ids]
        skipped = set()
        if skip_special_tokens:
            skipped = {number for number, token in self.added_tokens_decoder.items() if token.special}
        tokens = [self._tokenizer.id_to_token(number) for number in token_ids if number not in skipped]
        return join_tokens([token for token in tokens if token is not None])

    # The call

    def _get_padding_truncation_strategies(
        self,
        padding: Any = False,
        truncation: Any = None,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        verbose: bool = True,
        **kwargs: Any,
    ) -> tuple[PaddingStrategy, TruncationStrategy, int | None, dict[str, Any]]:
        """Return the strategies as transformers does; warn as its version 4 did if truncation has no effect."""
        strategies = super()._get_padding_truncation_strategies(
            padding, truncation, max_length, pad_to_multiple_of, verbose, **kwargs
        )
        asked = truncation not in (None, False, TruncationStrategy.DO_NOT_TRUNCATE)
        if verbose and asked and strategies[1] == TruncationStrategy.DO_NOT_TRUNCATE:
            logger.warning_once(
                f"truncation={truncation!r} has no effect: max_length was not given, and the tokenizer has no "
                "model_max_length"
            )
        return strategies

    def _encode_plus(self, text: Any, text_pair: Any = None, **options: Any) -> BatchEncoding:
        if options.get("sanitize_control_tokens"):  # a chat, which transformers' method splits into texts
            return super()._encode_plus(text, text_pair, **options)
        return self._encode(text, text_pair, **options)

    def _encode(
        self,
        text: Any,
        text_pair: Any,
        add_special_tokens: bool = True,
        padding_strategy: PaddingStrategy = PaddingStrategy.DO_NOT_PAD,
        truncation_strategy: TruncationStrategy = TruncationStrategy.DO_NOT_TRUNCATE,
        max_length: int | None = None,
        stride: int = 0,
        is_split_into_words: bool = False,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_tensors: Any = None,
        return_token_type_ids: bool | None = None,
        return_attention_mask: bool | None = None,
        return_overflowing_tokens: bool = False,
        return_special_tokens_mask: bool = False,
        return_offsets_mapping: bool = False,
        return_length: bool = False,
        verbose: bool = True,
        split_special_tokens: bool | None = None,
        **kwargs: Any,
    ) -> BatchEncoding:
        """Return the `BatchEncoding` of texts or pairs of texts; transformers' `__call__` passes its arguments here."""
        is_batched, samples = _as_samples(text, text_pair, is_split_into_words)
        split = self.split_special_tokens if split_special_tokens is None else split_special_tokens
        splitter = self._splitters[bool(split)]  # encodings are made later, maybe after more tokens were added
        limit = None if truncation_strategy == TruncationStrategy.DO_NOT_TRUNCATE else max_length
        assembler = Assembler(
            self._tokenizer.post_processor,
            add_special_tokens,
            truncation_strategy.value,
            limit,
            stride,
            self.truncation_side,
        )

        def tokens(sample: Sample, with_offsets: bool) -> list[Tokens]:
            return [self._encode_sequence(sequence, splitter, with_offsets) for sequence in sample]

        def encoding(sample: Sample) -> Encoding:
            return assembler.encoding(tokens(sample, True), self.convert_ids_to_tokens)

        if return_overflowing_tokens:
            wholes = enumerate(map(encoding, samples))
            parts = [(number, part) for number, whole in wholes for part in (whole, *whole.overflowing)]
            inputs = [(part.ids, part.type_ids, part.special_tokens_mask, part.offsets) for _, part in parts]
        else:
            inputs = [assembler.assemble(tokens(sample, return_offsets_mapping)) for sample in samples]
            if assembler.truncated and verbose:
                self._warn_of_unsaved_limit(max_length)
        ids, types, specials, offsets = map(list, zip(*inputs, strict=True)) if inputs else ([], [], [], [])
        for row in ids:
            self._eventual_warn_about_too_long_sequence(row, max_length, verbose)

        def returns(name: str, asked: bool | None) -> bool:
            return name in self.model_input_names if asked is None else asked

        masks = [[1] * len(row) for row in ids]
        padding = self._padding(ids, padding_strategy, max_length, pad_to_multiple_of, padding_side)
        outputs = {  # whether it is returned, its lists of one item per token, and the value that pads them
            "input_ids": (True, ids, self.pad_token_id),
            "token_type_ids": (returns("token_type_ids", return_token_type_ids), types, self.pad_token_type_id),
            "attention_mask": (returns("attention_mask", return_attention_mask), masks, 0),
            "special_tokens_mask": (return_special_tokens_mask, specials, 1),
            "offset_mapping": (return_offsets_mapping, offsets, (0, 0)),
        }
        data: dict[str, Any] = {
            name: padding.pad_rows(lists, value) for name, (returned, lists, value) in outputs.items() if returned
        }
        if return_length:
            data["length"] = [len(row) for row in ids]
        if return_overflowing_tokens:
            data["overflow_to_sample_mapping"] = [number for number, _ in parts]
            encodings = [padding.pad_encoding(part) for _, part in parts]
        else:
            encodings = LazyEncodings(lambda index: padding.pad_encoding(encoding(samples[index])), len(samples))
            if not is_batched and return_tensors is None:
                data = {name: values[0] for name, values in data.items()}
        return BatchEncoding(data, encodings, return_tensors, n_sequences=len(samples[0]) if samples else None)

    def _warn_of_unsaved_limit(self, max_length: int | None) -> None:
        """Warn once if a text was truncated at a `model_max_length` that was set after loading.

        sentence-transformers sets it to the configuration's `max_position_embeddings`, though RoFormer reads longer
        texts.
        """
        if max_length == self.model_max_length != self.init_kwargs.get("model_max_length"):
            logger.warning_once(
                f"texts are truncated to {max_length:,} tokens, the model_max_length that was set after loading "
                "(sentence-transformers sets the configuration's max_position_embeddings). To change that, set "
                "max_seq_length of the SentenceTransformer, or model_max_length of the tokenizer"
            )

    def _padding(
        self,
        ids: list[list[int]],
        strategy: PaddingStrategy,
        max_length: int | None,
        multiple: int | None,
        side: str | None,
    ) -> Padding:
        """Return the `Padding` of a batch with these rows of ids; longer rows stay as they are."""
        length = max_length or 0
        if strategy == PaddingStrategy.LONGEST or max_length is None:
            length = max(map(len, ids), default=0)
        length = -(-length // multiple) * multiple if multiple else length
        if strategy == PaddingStrategy.DO_NOT_PAD:
            length = 0
        return Padding(length, side or self.padding_side, self.pad_token_id, self.pad_token_type_id, self.pad_token)


RoFormerTokenizerFast = RoFormerTokenizer


def _as_samples(text: Any, text_pair: Any, is_split_into_words: bool) -> tuple[bool, list[Sample]]:
    """Return (is_batched, samples)."""

    def is_sequence(value: object) -> bool:
        if not is_split_into_words:
            return isinstance(value, str)
        return isinstance(value, (list, tuple)) and all(isinstance(word, str) for word in value)

    def sample(**sequences: Any) -> Sample:
        for name, value in sequences.items():
            if not is_sequence(value):
                expected = "a list of str" if is_split_into_words else "a str"
                raise ValueError(f"{name} is of type {type(value).__name__}; expected {expected}")
        # Encodings are made later, when the caller may have changed the lists.
        return [tuple(value) if is_split_into_words else value for value in sequences.values()]

    batched = isinstance(text, (list, tuple))
    if is_split_into_words:
        batched = batched and len(text) > 0 and isinstance(text[0], (list, tuple))
    if not batched:
        return False, [sample(text=text) if text_pair is None else sample(text=text, text_pair=text_pair)]
    if text_pair is None:
        samples = []
        for i, value in enumerate(text):
            if not is_sequence(value) and isinstance(value, (list, tuple)) and len(value) == 2:
                samples.append(sample(**{f"text[{i}][0]": value[0], f"text[{i}][1]": value[1]}))
            else:
                samples.append(sample(**{f"text[{i}]": value}))
        return True, samples
    if not isinstance(text_pair, (list, tuple)):
        raise TypeError(f"text_pair is of type {type(text_pair).__name__}; expected a list, as text is one")
    if len(text) != len(text_pair):
        raise ValueError(f"text has {len(text)} texts, but text_pair has {len(text_pair)}; expected one for each text")
    pairs = enumerate(zip(text, text_pair, strict=True))
    return True, [sample(**{f"text[{i}]": first, f"text_pair[{i}]": second}) for i, (first, second) in pairs]


def _remove_all_but(file_names: Iterable[str], folder: str | os.PathLike, filename_prefix: str | None) -> None:
    """Remove the files that an earlier tokenizer left in a folder and that loading prefers to these."""
    kept = {Path(name).resolve() for name in file_names}
    prefix = glob.escape(f"{filename_prefix}-") if filename_prefix else ""
    for pattern in _PREFERRED:
        for path in Path(folder).glob(prefix + pattern):
            if path.resolve() not in kept:
                path.unlink(missing_ok=True)  # another process may have removed it


def _first_words(words: Iterable[str]) -> str:
    """Return the first words and the number of the others, for a warning."""
    words = list(words)
    more = f" and {len(words) - _NAMED_WORDS} more" if len(words) > _NAMED_WORDS else ""
    return ", ".join(words[:_NAMED_WORDS]) + more


def _backend(vocabulary: dict[str, int], unk_token: str, lowercase: bool, strip_accents: bool | None) -> Tokenizer:
    """Return the `tokenizers.Tokenizer` that is saved as tokenizer.json: everything but the segmentation into words."""
    backend = Tokenizer(
        models.WordPiece(
            vocabulary, unk_token=unk_token, max_input_chars_per_word=LONGEST_WORD, continuing_subword_prefix=PREFIX
        )
    )
    # handle_chinese_chars would put spaces into added tokens.
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=False, strip_accents=strip_accents, lowercase=lowercase
    )
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"\p{Han}"), "isolated"), pre_tokenizers.BertPreTokenizer()]
    )
    backend.decoder = decoders.Sequence(
        [decoders.WordPiece(prefix=PREFIX), decoders.Fuse(), decoders.Replace(Regex(_SPACE_BESIDE_CHINESE), "")]
    )
    return backend
