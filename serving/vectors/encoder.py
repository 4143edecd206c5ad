"""What makes vectors of texts: a saved model, and how its hidden states become one vector."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...model_cards.facts import hash_file
from ..errors import ServingError

if TYPE_CHECKING:
    import torch

DTYPES = ("float32", "bfloat16", "float16")
BATCH_TOKENS = 16_384
# Tokens of a text at most, where --max-length does not say: no more than a batch has anyway, so that a text which is longer
# than memory cannot end a run. A constant, since vectors must not depend on the machine that computes them.
LONGEST = 8192
# What torch says where a CPU has too little memory, and no class of its errors.
_ALLOCATION = re.compile(r"alloc_cpu\.cpp|DefaultCPUAllocator")
_TOKENIZED = 256  # texts whose tokens are Python's lists at once
_TOKENIZERS = ("vocab.txt", "tokenizer.json")
# Of a saved model what its vectors depend on.
_IDENTITY = ("config.json", *_TOKENIZERS, "tokenizer_config.json", "*.safetensors", "*.bin")


def check_model(directory: str | Path) -> Path:
    """The folder of a saved encoder with its tokenizer, as far as its files say; a ServingError where it is none."""
    folder = Path(directory)
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        if not folder.is_dir():
            raise ServingError(f"{folder} is not a folder (`roformer pull` fetches a model from the Hub)") from None
        raise ServingError(
            f"{folder} is not a saved model: it has no config.json (`roformer convert` makes one of an original checkpoint)"
        ) from None
    except ValueError:
        raise ServingError(f"{folder / 'config.json'} is not JSON") from None
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise ServingError(f"{folder} has no tokenizer: copy the vocab.txt there with which the model was trained")
    if config.get("is_encoder_decoder"):
        raise ServingError(f"{folder} makes one text from another and has no vector of a text: name an encoder")
    if _matches_triplets(config) and config.get("triplet_scorer", "cross") == "cross":
        raise ServingError(
            f'{folder} compares texts by reading them together (triplet_scorer="cross") and has no vectors of single ones: '
            'train one with --scorer bi, or let pipeline("triplet-matching") compare'
        )
    return folder


def model_identity(folder: Path) -> str:
    """What tells a model from another: SHA-256 of its configuration, tokenizer and weights."""
    found = hashlib.sha256()
    for path in sorted({path for pattern in _IDENTITY for path in folder.glob(pattern)}):
        found.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        hash_file(found, path)
    return found.hexdigest()


def _matches_triplets(config: dict) -> bool:
    return (config.get("architectures") or [""])[0] == "RoFormerForTripletMatching"


class TextEncoder:
    """Vectors of texts by a saved model.

    `pooling` says what a vector is:

    - `"pooler"`: RoFormer-Sim's, a linear layer over [CLS];
    - `"bi"`: of a `RoFormerForTripletMatching`, the mean over the tokens, of length 1, as its `encode` gives it;
    - `"mean"`: of every other encoder the mean over its tokens, [CLS] and [SEP] among them, as sentence-transformers
      gives it.

    Args:
        directory: the model's folder.
        max_length: texts are cut after so many tokens, special ones included. Where None, as the two named would: at the
            tokenizer's `model_max_length`; without one "bi" reads 1,024 tokens, and "mean" `max_position_embeddings` of the
            configuration at most.
        longest: the most that is read where `max_length` is None, so that no text is longer than memory; None for no end.
        dtype: what the model computes in, one of `DTYPES`; the vectors are float32.
        device: as torch names it; where None, an accelerator if there is one.
        batch_tokens: most tokens that are computed at once, padding included.

    Raises:
        ServingError: one sentence that says why there are no vectors by this model, or of these texts.

    ```python
    >>> TextEncoder("roformer-mini-zh")(["今天天气很好。", "你好"]).shape
    (2, 256)
    ```
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        max_length: int | None = None,
        longest: int | None = LONGEST,
        dtype: str = "float32",
        device: str | None = None,
        batch_tokens: int = BATCH_TOKENS,
    ):
        folder = check_model(directory)
        if dtype not in DTYPES:
            raise ServingError(f"the dtype is {dtype!r}, but must be one of {', '.join(DTYPES)}")
        if batch_tokens < 1:
            raise ServingError(f"batch_tokens is {batch_tokens}, but must be at least 1")
        import torch
        from transformers import AutoTokenizer

        from ...model import RoFormerModel  # noqa: F401

        self.device = _device(device)
        self.model = _load(folder, getattr(torch, dtype)).to(self.device).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        config = self.model.config
        if len(self.tokenizer) > config.vocab_size:
            raise ServingError(
                f"{folder}: the tokenizer has {len(self.tokenizer):,} entries and the model {config.vocab_size:,}, so it is "
                "of another vocabulary: copy the vocab.txt there with which the model was trained"
            )
        if getattr(config, "is_decoder", False) and not getattr(config, "prefix_lm", False):
            raise ServingError(
                f"{folder} generates text (is_decoder): its tokens know nothing of what follows them, so no vector stands for "
                "a text; name an encoder"
            )
        has_pooler = getattr(config, "add_pooling_layer", False) and config.pooler_activation == "linear"
        self.pooling = "bi" if _matches_triplets(config.to_dict()) else "pooler" if has_pooler else "mean"
        self.width = config.hidden_size
        self.max_length = self._max_length(folder, max_length, longest)
        self.batch_tokens = batch_tokens
        config.unpad_inputs, config.use_cache = True, False

    def _max_length(self, folder: Path, wanted: int | None, longest: int | None) -> int:
        from ...absolute_positions import longest_text
        from ...configuration import RoFormerConfig
        from ...triplet_matching import longest_input

        config = self.model.config
        stated = getattr(config, "max_position_embeddings", None) or self.tokenizer.model_max_length
        ends = longest_text(config) if isinstance(config, RoFormerConfig) else stated
        least = self.tokenizer.num_special_tokens_to_add() + 1
        if wanted is not None:
            if wanted < least:
                raise ServingError(f"the longest text has {wanted} tokens, but must have at least {least}")
            if ends is not None and wanted > ends:
                raise ServingError(f"{folder} has positions for {ends:,} tokens, and not for {wanted:,} (--max-length)")
            return wanted
        longest = 10**9 if longest is None else longest
        if self.pooling == "bi":
            return min(longest_input(self.tokenizer, None), ends or longest, longest)
        stated = ends or longest if self.pooling == "pooler" else stated
        return min(self.tokenizer.model_max_length, longest, stated)

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Float32 of shape (len(texts), width)."""
        return self.vectors(self.tokenize(texts))

    def tokenize(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of each text, cut, with special tokens."""
        return self.tokenize_and_count(texts)[0]

    def tokenize_and_count(self, texts: Sequence[str]) -> tuple[list[np.ndarray], int]:
        """Those of `tokenize`, and how many of the texts were cut."""
        found, cut = [], 0
        for start in range(0, len(texts), _TOKENIZED):
            some = list(texts[start : start + _TOKENIZED])
            encoding = self._encode(some, truncation=True, max_length=self.max_length)
            found += [np.array(row, dtype=np.int32) for row in encoding["input_ids"]]
            if encoding.encodings is not None:
                cut += sum(bool(row.overflowing) for row in encoding.encodings)
            elif full := [i for i, row in enumerate(encoding["input_ids"]) if len(row) >= self.max_length]:
                rows = self._encode([some[i] for i in full])["input_ids"]
                cut += sum(len(row) > self.max_length for row in rows)
        return found, cut

    def _encode(self, texts: list[str], **options):
        return self.tokenizer(texts, return_attention_mask=False, return_token_type_ids=False, verbose=False, **options)

    def batches(self, ids: Sequence[np.ndarray]) -> Iterator[list[int]]:
        """Places of texts of like length, the longest first; as many as `batch_tokens` allow."""
        order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
        start = 0
        while start < len(order):
            stop = start + max(1, self.batch_tokens // len(ids[order[start]]))
            yield order[start:stop]
            start = stop

    def vectors(self, ids: Sequence[np.ndarray], names: Sequence[str] | None = None) -> np.ndarray:
        """Float32 of shape (len(ids), width), of what `tokenize` gives, in its order; `names` are the texts' in errors."""
        import torch

        found = torch.empty(len(ids), self.width, device=self.device)
        for batch in self.batches(ids):
            found[torch.tensor(batch, device=self.device)] = self.pooled(
                [ids[i] for i in batch], None if names is None else [names[i] for i in batch]
            )
        return found.cpu().numpy()

    def pooled(self, batch: Sequence[np.ndarray], names: Sequence[str] | None = None) -> "torch.Tensor":
        """Float32 of shape (len(batch), width) on the device, of texts that are computed at once."""
        import torch

        try:
            return self._pooled(batch)
        except (RuntimeError, MemoryError) as error:
            if not isinstance(error, (torch.OutOfMemoryError, MemoryError)) and not _ALLOCATION.search(str(error)):
                raise
        longest = max(range(len(batch)), key=lambda i: len(batch[i]))
        name = "a text" if names is None else names[longest]
        texts = name if len(batch) == 1 else f"{len(batch):,} texts at once, of which {name} is the longest"
        smaller = "--max-length" if len(batch) == 1 else "--batch-tokens, or a smaller --max-length"
        raise ServingError(
            f"{self.device} has too little memory for {texts}, with {len(batch[longest]):,} tokens: give a smaller {smaller}"
        )

    def _pooled(self, batch: Sequence[np.ndarray]) -> "torch.Tensor":
        import torch
        from torch.nn import functional as F

        from ...task_head import mean_over_tokens

        longest = max(map(len, batch))
        ids = np.full((len(batch), longest), self.tokenizer.pad_token_id or 0, dtype=np.int64)
        mask = np.zeros_like(ids)
        for i, row in enumerate(batch):
            ids[i, : len(row)], mask[i, : len(row)] = row, 1
        ids, mask = (torch.from_numpy(array).to(self.device) for array in (ids, mask))
        with torch.inference_mode(), _onednn(self.model.dtype != torch.float32):
            outputs = self.model(ids, attention_mask=mask)
            if self.pooling == "pooler":
                return outputs.pooler_output.float()
            mean = mean_over_tokens(outputs.last_hidden_state, mask).float()
            return F.normalize(mean, dim=-1) if self.pooling == "bi" else mean


def check_finite(vectors: np.ndarray, names: Sequence[str], remedy: str) -> None:
    """Raise a ServingError that names the first text whose vector is not finite, where there is one.

    Args:
        vectors: shape (len(names), width).
        remedy: what to do about it.
    """
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise ServingError(f"the vector of {names[int(np.argmin(finite))]} is not finite: {remedy}")


@contextmanager
def _onednn(enabled: bool) -> Iterator[None]:
    """Whether torch may compute with oneDNN while the block runs.

    In float32 that would be gelu alone, which is no faster, and oneDNN keeps what it has made for the last 1,024 shapes:
    since each batch has a number of tokens of its own, 100 MB.
    """
    import torch

    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = enabled and before
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


def _device(name: str | None) -> "torch.device":
    import torch

    if name is None:
        return torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except Exception as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise ServingError(f"there is no device {name!r} to compute on: {reason}") from None
    return device


def _load(folder: Path, dtype: "torch.dtype"):
    """The bare model, without a word about the weights of heads, which are left out."""
    from transformers import AutoModel

    from ...output.console import no_transformers_bar, no_transformers_report

    with no_transformers_bar(), no_transformers_report():
        return AutoModel.from_pretrained(folder, dtype=dtype)
