"""Triplet matching: is text A closer to B or to C? (section 4.5 of the paper, CAIL2019-SCM)

Dimensions in the shapes: b batch, n texts or pairs of a triplet, s sequence length.
"""

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedTokenizerBase
from transformers.modeling_outputs import MultipleChoiceModelOutput
from transformers.models.auto.auto_factory import _BaseAutoModelClass, _LazyAutoMapping
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.utils import logging

from .configuration import TRIPLET_LOSSES, RoFormerConfig
from .heads import RoFormerHead, flatten_examples, mean_cross_entropy, mean_loss, mean_over_tokens
from .inputs import check_ranges, check_shape, check_tokens, has_float64
from .model import can_return_tuple

DEFAULT_MAX_LENGTH = 1024  # for tokenizers without a limit; as in the paper's RoFormer-1024
_ROWS = 1 << 16  # vectors that `rank` converts to float64 at once
_INPUTS = {"cross": ("(A, B)", "(A, C)"), "bi": ("A", "B", "C")}


class RoFormerForTripletMatching(RoFormerHead):
    """Triplet matching: which of two texts, B or C, is closer to A. The label is 0 for B, 1 for C.

    `config.triplet_scorer` is one of:

    - `"cross"`: reads the pairs (A, B) and (A, C), as in the paper. One logit per pair, from the mean over its tokens
      without padding. The loss is binary cross-entropy on each pair, as in the original, or softmax over the two.
    - `"bi"`: encodes A, B and C separately, each as the mean over its tokens. The logits are the cosines of (A, B) and
      (A, C), divided by `config.triplet_temperature`; the loss is softmax over the two, or the margin between the
      cosines. `encode` computes vectors once, and `rank` compares them with any text's.
    """

    def __init__(self, config: RoFormerConfig):
        super().__init__(config)
        if config.triplet_scorer == "cross":
            self.dropout = nn.Dropout(config.hidden_dropout_prob)
            # Not named `classifier`: multiple choice would load its weights, but apply them to other vectors.
            self.scorer = nn.Linear(config.hidden_size, 1)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs,
    ) -> MultipleChoiceModelOutput:
        """Score B and C of each triplet, which is n sequences: 2 pairs for "cross", 3 texts for "bi".

        Args:
            input_ids: shape (b, 2, s), the pairs (A, B) and (A, C); or (b, 3, s), the texts A, B and C.
            attention_mask: shape (b, n, s), 0 for padding.
            token_type_ids: segments, shape (b, n, s); all 0 if None.
            inputs_embeds: shape (b, n, s, embedding_size), instead of `input_ids`.
            position_ids: integers, shape (b, n, s); 0, 1, 2, … if None.
            labels: 0 if B is closer to A, 1 if C is, shape (b,).
            num_items_in_batch: number of labels in the whole batch, if this call gets a part of it; see `mean_loss`.
            **kwargs: the other arguments of `RoFormerModel.forward`, and `return_dict`.

        Returns:
            `logits` of shape (b, 2), for B and for C, and `loss`. `hidden_states` and `attentions` are those of the
            b·n sequences.

        Raises:
            ValueError: naming the argument that does not fit, before anything is computed.
        """
        b, n = self.check_inputs(input_ids, attention_mask, token_type_ids, inputs_embeds, labels, position_ids)
        *inputs, position_ids = flatten_examples(input_ids, attention_mask, token_type_ids, inputs_embeds, position_ids)
        outputs = self.base_outputs(*inputs, position_ids=position_ids, **kwargs)
        vectors = mean_over_tokens(outputs.last_hidden_state, inputs[1]).unflatten(0, (b, n))
        logits = self.scores(vectors)
        loss = None if labels is None else self.triplet_loss(logits, labels, num_items_in_batch)
        return MultipleChoiceModelOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )

    def scores(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return logits, shape (b, 2), of vectors of shape (b, n, hidden_size)."""
        if self.config.triplet_scorer == "cross":
            return self.scorer(self.dropout(vectors)).squeeze(-1)
        # Cosines of texts are so close together that many are equal in half precision.
        vectors = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
        return F.cosine_similarity(vectors[:, :1], vectors[:, 1:], dim=-1) / self.config.triplet_temperature

    def triplet_loss(self, logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch=None) -> torch.Tensor:
        """Return the mean over the batch of the config's loss; see `mean_loss`.

        Args:
            logits: shape (b, 2).
            labels: integers 0 and 1, shape (b,).
        """
        name = self.config.triplet_loss or TRIPLET_LOSSES[self.config.triplet_scorer][0]
        labels = labels.to(logits.device, torch.long)
        if name == "softmax":
            return mean_cross_entropy(logits, labels, num_items_in_batch)
        if name == "binary_cross_entropy":
            is_closer = torch.stack((labels == 0, labels == 1), dim=-1).to(logits.dtype)
            pairs = None if num_items_in_batch is None else 2 * num_items_in_batch
            return mean_loss(F.binary_cross_entropy_with_logits, pairs, logits, is_closer)
        # max(0, margin + cos(A, further) - cos(A, closer))
        cosines = (logits * self.config.triplet_temperature).unbind(-1)
        margin = self.config.triplet_margin
        return mean_loss(F.margin_ranking_loss, num_items_in_batch, *cosines, 1 - 2 * labels, margin=margin)

    def check_inputs(
        self, input_ids, attention_mask, token_type_ids, inputs_embeds, labels, position_ids
    ) -> torch.Size:
        """Return b and n; raise a ValueError that names the argument that does not fit."""
        names = _INPUTS[self.config.triplet_scorer]
        tokens = check_tokens(input_ids, inputs_embeds, ("batch", str(len(names))))
        shape = tuple(tokens.shape[:3])
        if shape[1] != len(names):
            name = "input_ids" if inputs_embeds is None else "inputs_embeds"
            raise ValueError(
                f"{name} has shape {tuple(tokens.shape)}; with triplet_scorer={self.config.triplet_scorer!r} expected "
                f"(batch, {len(names)}, length): {', '.join(names)}"
            )
        check_shape("attention_mask", attention_mask, shape)
        check_shape("token_type_ids", token_type_ids, shape)
        check_shape("position_ids", position_ids, shape)
        if labels is not None and (labels.shape != shape[:1] or labels.is_floating_point()):
            raise ValueError(
                f"labels are {labels.dtype} of shape {tuple(labels.shape)}, but must be integers of shape ({shape[0]},)"
            )
        check_ranges(("labels", labels, 2, None))
        return tokens.shape[:2]

    @torch.no_grad()
    def encode(
        self,
        texts: Sequence[str],
        tokenizer: PreTrainedTokenizerBase,
        *,
        batch_size: int = 32,
        max_length: int | None = None,
        progress: bool | None = None,
    ) -> torch.Tensor:
        """Return vectors of texts, for `rank`.

        Texts of similar length share a batch, so that there is little padding. Dropout and gradients are off.

        Args:
            texts: none of them empty.
            tokenizer: the model's.
            batch_size: number of texts in a batch.
            max_length: truncate texts to this many tokens; see `longest_input`.
            progress: show a progress bar; if None, for more than 20 batches.

        Returns:
            Shape (len(texts), hidden_size), each row of length 1, float32 on the CPU, in the order of `texts`.

        ```python
        >>> vectors = model.encode(cases, tokenizer)
        >>> cosines, indices = model.rank(model.encode([text], tokenizer)[0], vectors, top_k=10)
        ```
        """
        if self.config.triplet_scorer != "bi":
            raise ValueError('encode needs triplet_scorer="bi"; a model with "cross" has no vectors of single texts')
        if isinstance(texts, str):
            raise ValueError("texts is a single string, but must be a list of strings")
        max_length = longest_input(tokenizer, max_length)
        ids = tokenizer(list(texts), truncation=True, max_length=max_length)["input_ids"] if len(texts) else []
        for i, row in enumerate(ids):
            if len(row) <= tokenizer.num_special_tokens_to_add():
                raise ValueError(f"texts[{i}] contains no token")
        order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
        starts = range(0, len(order), batch_size)
        vectors = torch.empty(len(ids), self.config.hidden_size)
        was_training = self.training
        self.eval()
        try:
            for start in logging.tqdm(starts, disable=len(starts) <= 20 if progress is None else not progress):
                batch = order[start : start + batch_size]
                inputs = {"input_ids": [ids[i] for i in batch]}
                inputs = tokenizer.pad(inputs, return_tensors="pt", padding_side="right").to(self.device)
                hidden_states = self.roformer(inputs["input_ids"], inputs["attention_mask"]).last_hidden_state
                vectors[batch] = mean_over_tokens(hidden_states, inputs["attention_mask"]).float().cpu()
        finally:
            self.train(was_training)
        return F.normalize(vectors, dim=-1)

    @staticmethod
    def rank(
        vector: torch.Tensor, vectors: torch.Tensor, top_k: int | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the texts that are closest to a text, best first; equal cosines keep the order of `vectors`.

        Args:
            vector: the text's, shape (hidden_size,), from `encode`; of any floating type.
            vectors: those of the other texts, shape (n, hidden_size).
            top_k: number of texts to return; all if None.

        Returns:
            `values`, their cosines with the text, and `indices`, their rows; each of shape (min(top_k, n),).

        Raises:
            ValueError: a vector has numbers that are not finite.
        """
        dtype = torch.promote_types(torch.promote_types(vector.dtype, vectors.dtype), torch.float32)
        # In float32 the products of equal rows can differ in the last bit, depending on the row's place.
        exact = torch.float64 if has_float64(vectors.device) else torch.float32
        vector = vector.to(vectors.device, exact)
        cosines = torch.cat([part.to(exact) @ vector for part in vectors.split(_ROWS)]).to(dtype)
        if not (is_finite := cosines.isfinite()).all():  # NaN would be the best
            row = int(is_finite.int().argmin())
            raise ValueError(f"vector or vectors[{row}] has numbers that are not finite")
        values, indices = cosines.sort(descending=True, stable=True)
        return values[:top_k], indices[:top_k]


def longest_input(tokenizer: PreTrainedTokenizerBase, max_length: int | None) -> int:
    """Return the maximum length of inputs, special tokens included; longer ones are truncated.

    It is `max_length` if given, else the tokenizer's `model_max_length`, else 1,024 as in the paper.
    """
    if max_length is not None:
        return max_length
    limit = tokenizer.model_max_length
    return DEFAULT_MAX_LENGTH if limit > 10**20 else limit  # transformers writes 10^30 for no limit


class AutoModelForTripletMatching(_BaseAutoModelClass):
    """Auto class for triplet matching, like transformers' Auto classes for other tasks.

    ```python
    >>> from modeling_roformer import AutoModelForTripletMatching
    >>> model = AutoModelForTripletMatching.from_pretrained(DIR, triplet_scorer="bi")
    ```
    """

    _model_mapping = _LazyAutoMapping(CONFIG_MAPPING_NAMES, OrderedDict())


AutoModelForTripletMatching.register(RoFormerConfig, RoFormerForTripletMatching, exist_ok=True)
