"""Linear attention with rotary position embedding: equations 17 to 19 of the RoFormer paper (arXiv:2104.09864).

Attention weighs values by a similarity of query and key (17),

    o_m = Σ_n sim(q_m, k_n) v_n / Σ_n sim(q_m, k_n),

which for softmax attention is e^(q_mᵀk_n / √d), and takes all pairs (m, n) to compute. Where it is a product of features
that are never negative, sim(q, k) = φ(q)ᵀ ϕ(k) (18), the sums over n can be made before any query is looked at, at a cost
that grows with the length and not with its square. Rotation keeps lengths, so that it may follow the maps (19):

    o_m = Σ_n (R_m φ(q_m))ᵀ (R_n ϕ(k_n)) v_n  /  Σ_n φ(q_m)ᵀ ϕ(k_n).

Rotated features may have a negative product, hence the denominator is not rotated, lest it come near 0. The maps φ and ϕ
are those of feature_maps.py, the sums over all keys or over those so far those of linear_sums.py. Nothing is divided by
√d, but in Performer's map, and there is no matrix of probabilities whose entries could be dropped out.

Dimensions in the shapes: b batch, s sequence length, h heads, d head_dim.
"""

from contextlib import nullcontext

import torch
from transformers.cache_utils import Cache

from .attention import MultiHeadAttention
from .configuration import RoFormerConfig
from .feature_maps import CosineMap, Features, make_feature_map
from .linear_sums import RunningSums, attend_causally, attend_to_all
from .masks import VisibleKeys
from .rotary import rotate
from .unpadding import Packing


class RoFormerLinearSelfAttention(MultiHeadAttention):
    """Equation 19; equation 18 where `position_embeddings` is empty.

    The feature maps and all sums are computed in float32, or in float64 where the model is: sums over a long text need
    more digits than half precision has.
    """

    def __init__(self, config: RoFormerConfig, layer_idx: int):
        super().__init__(config, layer_idx)
        self.is_causal = config.is_decoder or config.prefix_lm
        self.rotary_value = config.rotary_value
        self.feature_map = make_feature_map(config, layer_idx)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: VisibleKeys | Packing | None,
        position_embeddings: tuple[torch.Tensor, ...],
        past_key_values: Cache | None = None,
        output_attentions: bool | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        query, key, value = self.project(hidden_states)
        width = torch.promote_types(query.dtype, torch.float32)
        query, key, value = query.to(width), key.to(width), value.to(width)
        weights = layer = None
        if past_key_values is not None:
            layer = getattr(past_key_values, "self_attention_cache", past_key_values).layers[self.layer_idx]
        with _without_autocast(query.device.type):
            if isinstance(attention_mask, Packing):
                texts = attention_mask.by_length(query, key, value, *position_embeddings)
                contexts = [self.attend_linearly(q, k, v, positions)[0] for q, k, v, *positions in texts]
                context = torch.cat([context.flatten(0, 1) for context in contexts])[None]
            else:
                sums = None if layer is None else layer.sums
                context, sums, weights = self.attend_linearly(
                    query, key, value, position_embeddings, attention_mask, sums, output_attentions
                )
                if layer is not None:
                    layer.extend(sums, value.shape[1])
        return context.flatten(-2).to(hidden_states.dtype), weights

    def attend_linearly(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, ...],
        visible: VisibleKeys | None = None,
        sums: RunningSums | None = None,
        output_attentions: bool | None = None,
    ) -> tuple[torch.Tensor, RunningSums | None, torch.Tensor | None]:
        """Equation 19.

        Args:
            query, key, value: shape (b, s, h, d).
            position_embeddings: cos and sin for the features, and behind them those for the values, where they have
                others; or nothing.
            visible: which keys there are; None for all.
            sums: of the tokens before these.

        Returns:
            The output, shape (b, s, h, d); where the model is causal, the sums of all tokens so far; and where they are
            asked for, the weights of all pairs, shape (b, h, s, s), which add up to 1 only where the denominator has
            the same ones.
        """
        keep, groups = (None, None) if visible is None else visible
        if position_embeddings and self.rotary_value:
            value = rotate(value, *position_embeddings[-2:])
        query = self.feature_map.query(query, position_embeddings[:2])
        key = self.feature_map.key(
            key, position_embeddings[:2], keep, self.is_causal, None if sums is None else sums.log_scale
        )
        if output_attentions:
            weights, below = weights_of_all_pairs(query, key, self.is_causal, groups)
            numerators, denominators = None, below.sum(-1).transpose(1, 2)
        elif self.is_causal:
            earlier = sums
            numerators, denominators, sums = attend_causally(query, key, value, sums, groups)
        else:
            numerators, denominators = attend_to_all(query, key, value)
        count = None
        if isinstance(self.feature_map, CosineMap):
            count = number_of_keys(value, self.is_causal, keep, groups)
            if self.is_causal and not output_attentions and earlier is not None:
                count = count + earlier.denominator[:, :1, -1]  # the feature that is 1 for every key
        attends = denominators > self.feature_map.least_denominator(value.dtype, count)
        denominators = denominators.where(attends, torch.inf)
        if output_attentions:
            weights = weights / denominators.transpose(1, 2)[..., None]
            return torch.matmul(weights, value.transpose(1, 2)).transpose(1, 2), None, weights
        return numerators / denominators[..., None], sums if self.is_causal else None, None


def weights_of_all_pairs(
    query: Features, key: Features, causal: bool, groups: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The terms of both sums of equation 19, each of shape (b, h, s, s): for looking at, at the square of the length."""
    visible = None
    if groups is not None:
        visible = (groups[:, None, :] <= groups[:, :, None])[:, None]
    elif causal:
        s = query.numerator.shape[1]
        visible = torch.ones(s, s, dtype=torch.bool, device=query.numerator.device).tril()
    weights, below = (
        torch.matmul(q.transpose(1, 2), k.permute(0, 2, 3, 1))
        for q, k in ((query.numerator, key.numerator), (query.denominator, key.denominator))
    )
    if key.log_scale is not None:
        shift = key.log_scale.transpose(1, 2)[:, :, None]  # (b, h, 1, s)
        own_shift = shift.masked_fill(~visible, torch.finfo(shift.dtype).min).amax(-1, keepdim=True)
        scale = (shift - own_shift).masked_fill(~visible, -torch.inf).exp()
        return weights * scale, below * scale
    if visible is not None:
        weights, below = weights * visible, below * visible
    return weights, below


def number_of_keys(
    value: torch.Tensor, causal: bool, keep: torch.Tensor | None, groups: torch.Tensor | None
) -> torch.Tensor:
    """How many of these keys each query has, shape (b, s or 1)."""
    b, s = value.shape[:2]
    ones = value.new_ones(b, s) if keep is None else keep.to(value.dtype)
    if not causal:
        return ones.sum(1, keepdim=True)
    count = ones.cumsum(1)
    if groups is None:
        return count
    return count.gather(1, torch.searchsorted(groups, groups, right=True) - 1)


def _without_autocast(device_type: str):
    if torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()
