"""Vectors of texts from the hidden states of a saved model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from modeling_roformer.output.console import no_transformers_bar, no_warnings
from modeling_roformer.output.device import device_of
from modeling_roformer.saved_fields import MODEL_TYPES

from ..batches import BATCH_TOKENS, run_in_batches, without_onednn
from ..chunks import chunks_of
from ..errors import ServingError
from ..model_folder import check_vocabulary, load_whole, named_when_unreadable, read_model_folder
from ..model_identity import digest_of_files, model_files
from ..pooling import (
    MODULES,
    PROMPTS,
    TRANSFORMER,
    check_model,
    length_of_older_versions,
    modules_of,
    pooling_of,
)
from ..prompts import prompt_length, prompts_of

if TYPE_CHECKING:
    import torch

# Upper bound of the default length in tokens, so that a very long text does not exhaust memory. It is a constant,
# because vectors must not depend on the machine.
MAX_LENGTH = 8192
_TEXTS_PER_CALL = 256  # texts tokenized in a call: their ids are Python lists for a moment
# Files of sentence-transformers, which it reads with modules.
_LIBRARY_FILES = (MODULES, PROMPTS, TRANSFORMER)


def model_identity(directory: str | Path) -> str:
    """Return the SHA-256 of the files of a model that determine its vectors: configuration, tokenizer, weights, and
    the modules of sentence-transformers with their settings."""
    folder = check_model(directory)
    files = set(model_files(folder))
    for _, place in modules_of(folder)[1:]:
        files |= {*(folder / name for name in _LIBRARY_FILES), *(folder / place).glob("*")}
    return digest_of_files(folder, files)


@dataclass(frozen=True)
class Rows:
    """Tokenized texts: a row for each text, or for each chunk of a text, with the text's id.

    `truncated` texts have `max_length` tokens or more. `chunks` are the numbers of chunks in their text, from 1. The
    first `prompt_length` tokens of each row belong to a prompt.
    """

    ids: list[str]
    texts: list[str]
    tokens: list[np.ndarray]
    truncated: int
    chunks: list[int] | None = None
    prompt_length: int = 0

    @property
    def names(self) -> list[str]:
        """Return a name for each row, for errors."""
        if self.chunks is None:
            return self.ids
        return [f"{id_}, chunk {number}" for id_, number in zip(self.ids, self.chunks, strict=True)]


class TextEncoder:
    """Encoder of texts with a saved model.

    Args:
        directory: the model's folder.
        max_length: truncate texts to this number of tokens, special tokens included. The default is the tokenizer's
            `model_max_length`; without one, "bi" reads 1,024 tokens and "mean" `max_position_embeddings`.
        longest: upper bound of that default; None for no bound.
        overlap: do not truncate texts, but split them into chunks of `max_length` tokens, each with the last `overlap`
            tokens of the one before; see `rows`.
        dtype: dtype of the model: float32, bfloat16 or float16; the vectors are float32.
        device: cpu, or an accelerator, such as cuda or cuda:1; see `device_of`.
        batch_tokens: maximum tokens of a batch, padding included. It becomes smaller when memory runs out.

    Raises:
        ServingError: the model has no vectors of texts, or a text cannot be encoded.

    >>> TextEncoder("roformer-mini-zh")(["今天天气很好。", "你好"]).shape
    (2, 256)
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        max_length: int | None = None,
        longest: int | None = MAX_LENGTH,
        overlap: int | None = None,
        dtype: str = "float32",
        device: str | None = None,
        batch_tokens: int = BATCH_TOKENS,
    ):
        folder = check_model(directory)
        self.prompts = prompts_of(folder)
        import torch

        from modeling_roformer.registration import registered_transformers

        from ..sentence_vectors import SentenceVectors

        self.device = device_of(device, ServingError)
        # The weights of heads are unused.
        with named_when_unreadable(folder), no_transformers_bar(), no_warnings("transformers"):
            self.tokenizer = registered_transformers.AutoTokenizer.from_pretrained(folder)
            options = {"dtype": getattr(torch, dtype)}
            is_ours = read_model_folder(folder).get("model_type") in (*MODEL_TYPES, "nezha")
            if is_ours:  # its loading refuses missing weights, and finds a pooler that config.json does not mention
                model = registered_transformers.AutoModel.from_pretrained(folder, **options)
        if not is_ours:
            unused = () if pooling_of(read_model_folder(folder)) == "pooler" else ("pooler.",)
            model = load_whole(registered_transformers.AutoModel, folder, unused, **options)
        self.model = model.to(self.device).eval()
        config = self.model.config
        check_vocabulary(folder, self.tokenizer, config)
        if getattr(config, "is_decoder", False) and not getattr(config, "prefix_lm", False):
            raise ServingError(
                f"{folder} is a decoder (is_decoder): its tokens do not attend to later ones, so texts have no "
                "vectors. Name an encoder"
            )
        self._vectors = SentenceVectors(folder, config).to(self.device)
        self.width = self._vectors.width
        self.overlap, self._option = overlap, "max_length" if overlap is None else "chunk"
        if overlap is not None:
            self.tokenizer.truncation_side = "right"  # or the last chunk of a text would be its first
        self.max_length = self._max_length(folder, max_length, longest)
        self.batch_tokens = batch_tokens
        self._check_room(0)
        config.unpad_inputs, config.use_cache = True, False

    def _max_length(self, folder: Path, wanted: int | None, longest: int | None) -> int:
        """Return `wanted`, or the default length; raise ServingError if the model has positions for fewer tokens."""
        from modeling_roformer.configuration import RoFormerConfig
        from modeling_roformer.rotary import longest_text
        from modeling_roformer.triplet_matching import longest_input

        config = self.model.config
        positions = getattr(config, "max_position_embeddings", None) or self.tokenizer.model_max_length
        limit = longest_text(config) if isinstance(config, RoFormerConfig) else positions
        if wanted is not None:
            if limit is not None and wanted > limit:
                raise ServingError(f"{folder} has positions for {limit:,} tokens, fewer than {self._option}, {wanted}")
            return wanted
        longest = longest or 10**9
        if self._vectors.pooling == "bi":
            return min(longest_input(self.tokenizer, None), limit or longest, longest)
        if (length := length_of_older_versions(folder)) is not None:
            return min(length, limit or longest, longest)
        if self._vectors.pooling == "pooler":
            positions = limit or longest
        return min(self.tokenizer.model_max_length, longest, positions)

    def _check_room(self, prompt_tokens: int) -> None:
        """Raise ServingError if a prompt leaves no room for a text, or for the overlap of chunks."""
        least = self.tokenizer.num_special_tokens_to_add() + prompt_tokens + 1
        if self.max_length < least:
            prompt = f" with the {prompt_tokens} tokens of the model's prompt" if prompt_tokens else ""
            raise ServingError(f"{self._option} is {self.max_length}; expected at least {least}{prompt}")
        if self.overlap is not None and not 0 <= self.overlap <= self.max_length - least:
            prompt = f", with the {prompt_tokens} tokens of the model's prompt" if prompt_tokens else ""
            raise ServingError(
                f"overlap is {self.overlap}; expected 0 to {self.max_length - least} for chunks of {self.max_length} "
                f"tokens{prompt}"
            )

    def __call__(self, texts: Sequence[str], task: str = "document") -> np.ndarray:
        """Return the vectors in float32, of shape (len(texts), width); see `rows`."""
        rows = self.rows([f"number {i}" for i in range(1, len(texts) + 1)], texts, task)
        return self.vectors(rows)

    def rows(self, ids: Sequence[str], texts: Sequence[str], task: str = "document") -> Rows:
        """Tokenize texts.

        Args:
            task: "document" or "query"; the model's prompt for it is put before each text, and before each chunk.
        """
        prompt = self.prompts[task]
        prompt_ids = self._encode([prompt], add_special_tokens=False)["input_ids"][0]
        self._check_room(len(prompt_ids))
        length = prompt_length(self.tokenizer, prompt)
        if self.overlap is not None:
            return self._chunks(ids, texts, prompt_ids, length)
        tokens = []
        for start in range(0, len(texts), _TEXTS_PER_CALL):
            prompted = [prompt + text for text in texts[start : start + _TEXTS_PER_CALL]]
            encoding = self._encode(prompted, truncation=True, max_length=self.max_length)
            tokens += [np.array(row, dtype=np.int32) for row in encoding["input_ids"]]
        truncated = sum(len(row) >= self.max_length for row in tokens)
        return Rows(list(ids), list(texts), tokens, truncated, prompt_length=length)

    def _chunks(self, ids: Sequence[str], texts: Sequence[str], prompt_ids: list[int], length: int) -> Rows:
        rows = Rows([], [], [], 0, [], length)
        for id_, text in zip(ids, texts, strict=True):
            chunks = chunks_of(self.tokenizer, text, self.max_length - len(prompt_ids), self.overlap)
            for number, chunk in enumerate(chunks, 1):
                row, offsets, places = chunk.ids, chunk.offsets, chunk.places
                rows.ids.append(id_)
                rows.texts.append(text[offsets[places[0]][0] : offsets[places[-1]][1]] if places else text)
                first = places[0] if places else len(row) - 1
                rows.tokens.append(np.array([*row[:first], *prompt_ids, *row[first:]], dtype=np.int32))
                rows.chunks.append(number)
        return rows

    def _encode(self, texts: list[str], **options):
        return self.tokenizer(texts, return_attention_mask=False, return_token_type_ids=False, verbose=False, **options)

    def vectors(self, rows: Rows) -> np.ndarray:
        """Return the vectors of tokenized texts in float32, of shape (len(rows.ids), width).

        If a batch does not fit in memory, it is halved, and so are all later ones: `batch_tokens` becomes smaller.
        """
        import torch

        ids = rows.tokens
        vectors = torch.empty(len(ids), self.width, device=self.device)

        def compute(batch: list[int]) -> None:
            pooled = self._pooled([ids[place] for place in batch], rows.prompt_length)
            vectors[torch.tensor(batch, device=self.device)] = pooled

        with without_onednn(self.model.dtype):
            self.batch_tokens = run_in_batches(
                [len(row) for row in ids], self.batch_tokens, compute, lambda place: rows.names[place], self.device
            )
        return vectors.cpu().numpy()

    def _pooled(self, batch: Sequence[np.ndarray], prompt_length: int) -> "torch.Tensor":
        """Return the vectors of one batch on the device, in float32, of shape (len(batch), width)."""
        import torch
        from torch.nn.utils.rnn import pad_sequence

        ids = pad_sequence([torch.from_numpy(row).long() for row in batch], True, self.tokenizer.pad_token_id or 0)
        mask = pad_sequence([torch.ones(len(row), dtype=torch.long) for row in batch], True)
        ids, mask = ids.to(self.device), mask.to(self.device)
        return self._vectors(self.model(ids, attention_mask=mask), ids, mask, prompt_length)


def check_finite(vectors: np.ndarray, names: Sequence[str], remedy: str) -> None:
    """Raise ServingError with the first name and the remedy if a vector is not finite; shape (len(names), width)."""
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise ServingError(f"the vector of {names[int(np.argmin(finite))]} is not finite: {remedy}")
