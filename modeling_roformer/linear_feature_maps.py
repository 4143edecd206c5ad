"""The feature maps of linear attention: φ of queries and ϕ of keys in equations 17 to 19 of the RoFormer paper.

Each docstring defines the attention of its map by matrices over all pairs (m, n), which are never computed: with W in
the numerator and Z in the denominator, the output is o_m = Σ_n W_mn v_n / Σ_n Z_mn. N is the number of keys; a causal
model uses those with n ≤ m. R_m is the rotation of rotary.py in as many dimensions as there are features, or the
identity without rotary positions.

Dimensions in the shapes: b batch, s sequence length, h heads, d head_dim, f features, c chunks, n positions in a chunk.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers import initialization as init

from .configuration import RoFormerConfig
from .inputs import can_be_read, has_float64, is_traced, is_transformed

CHUNK = 64  # tokens of a causal model whose pairs are formed; memory per token is smallest near head_dim


class FeatureMap(nn.Module):
    """Base of the maps, for one kind of features for queries and keys."""

    rotates_first = False  # whether queries and keys are rotated, in place of features in the numerator

    def __init__(self, config: RoFormerConfig, layer_idx: int):
        super().__init__()

    def phi(self, x: torch.Tensor) -> torch.Tensor:
        """Return the features, shape (b, s, h, f), of x of shape (b, s, h, d)."""
        raise NotImplementedError

    def query(self, query: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the features of queries, and None, since each query's scale cancels."""
        return self.phi(query), None

    def key(
        self, key: torch.Tensor, keep: torch.Tensor | None, causal: bool, log_scale: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the features, shape (b, s, h, f), of keys of shape (b, s, h, d).

        Args:
            keep: False for padding, whose features are 0; boolean, shape (b, s).
            causal: whether each query has sums of its own.
            log_scale: log-scale of the sums over earlier keys, shape (b, h).

        Returns:
            The features, and their log-scale: the logarithm of the number that they were divided by, shape (b, s, h),
            non-decreasing along s, or (b, 1, h) if not causal; None if they were not divided.
        """
        features = self.phi(key)
        return features if keep is None else features * keep[..., None, None], None

    def least_denominator(self, dtype: torch.dtype, keys: Any, sums: Any) -> float | torch.Tensor:
        """Return the bound that a query's denominator must exceed; otherwise its output is 0.

        Args:
            keys: `Features` of the keys of a causal model; None if each query has all keys, which `sums` include.
            sums: `RunningSums` over the preceding tokens, or None.
        """
        return torch.finfo(dtype).tiny


class EluMap(FeatureMap):
    """elu(x) + 1 of queries and keys (arXiv:2006.16236), as equation 19 has it:

    W_mn = (R_m φ(q_m))ᵀ (R_n φ(k_n)),   Z_mn = φ(q_m)ᵀ φ(k_n),   φ(x) = elu(x) + 1 = x + 1 where x > 0, else e^x.
    """

    def phi(self, x: torch.Tensor) -> torch.Tensor:
        # elu(x) + 1 would round small values away.
        return F.relu(x) + x.clamp(max=0).exp()


class SoftmaxMap(FeatureMap):
    """Softmax over a query's own features, and exponential of a key's, as below equation 18 of the paper:

    W_mn = (R_m φ(q_m))ᵀ (R_n ϕ(k_n)),   Z_mn = φ(q_m)ᵀ ϕ(k_n),   φ(q)_i = e^(q_i) / Σ_j e^(q_j),   ϕ(k)_i = e^(k_i).

    Exponents are shifted against overflow: those of a query by its largest. Keys are shifted by their largest exponent,
    one per head and text; in a causal model by the largest so far, and the log-scale rescales the sums when larger keys
    join them. The shifts, and the constant Σ_j e^(q_j) of a query, cancel between numerator and denominator, so no
    epsilon is needed and no gradient flows through them.
    """

    def query_exponents(self, query: torch.Tensor) -> torch.Tensor:
        """Return the logarithms of a query's features, up to a constant per query, shape (b, s, h, f)."""
        return query

    def key_exponents(self, key: torch.Tensor) -> torch.Tensor:
        """Return the logarithms of a key's features, shape (b, s, h, f)."""
        return key

    def query(self, query: torch.Tensor) -> tuple[torch.Tensor, None]:
        exponents = self.query_exponents(query)
        return (exponents - exponents.detach().amax(-1, keepdim=True)).exp(), None

    def key(self, key, keep, causal, log_scale) -> tuple[torch.Tensor, torch.Tensor]:
        exponents = self.key_exponents(key)
        if keep is not None:
            exponents = exponents.masked_fill(~keep[..., None, None], -torch.inf)
        shift = exponents.detach().amax(-1)  # (b, s, h)
        shift = running_maximum(shift, log_scale) if causal else shift.amax(1, keepdim=True)
        shift = shift.clamp(min=torch.finfo(shift.dtype).min)  # -inf before the first key that is not padding
        return (exponents - shift[..., None]).exp(), shift

    def least_denominator(self, dtype: torch.dtype, keys: Any, sums: Any) -> float:
        """Return e^(-43) in float32: each term is at most 1, and gradients of smaller sums would overflow."""
        return torch.finfo(dtype).tiny ** 0.5


class CosineMap(FeatureMap):
    """1 + cos(q, k), from the RoPE author's post https://kexue.fm/archives/8265. The rotation is inside the cosine:
    unlike in equation 19 both sums are rotated, and the weights are probabilities:

    W_mn = Z_mn = 1 + (R_m q̂_m)ᵀ (R_n k̂_n),   x̂ = x / |x|,   so that Σ_n Z_mn = N + (R_m q̂_m)ᵀ Σ_n R_n k̂_n.

    The features are x̂ and the number 1. A zero vector has x̂ = 0 and weights 1. If all keys point away from a query,
    all its weights vanish, and its output is 0 (see `least_denominator`).
    """

    rotates_first = True

    def phi(self, x: torch.Tensor) -> torch.Tensor:
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return F.pad(x / length.where(length > 0, torch.inf), (0, 1), value=1.0)

    def least_denominator(self, dtype: torch.dtype, keys: Any, sums: Any) -> torch.Tensor:
        """Return the rounding error of a sum whose terms are at most 2, shape (b, s or 1, h)."""
        # The last feature is 1 for every key, so its sum is their number.
        count: Any = 0 if sums is None else sums.denominator[:, None, :, -1]
        count = count if keys is None else count + keys.denominator[..., -1].cumsum(1)
        return count * (8 * torch.finfo(dtype).eps)


class FavorMap(SoftmaxMap):
    """Performer's positive orthogonal random features (FAVOR+, arXiv:2009.14794), m of them:

    φ(x)_i = e^(ω_iᵀx̃ − |x̃|² / 2) / √m,   x̃ = x / d^(1/4),   ω_i ~ N(0, 1), orthogonal in groups of d.

    The mean of φ(q)ᵀ φ(k) over ω is e^(qᵀk / √d), the weight of softmax attention. With `linear_rotation` "after", the
    m features are rotated, with θ_i = 10000^(−2i/m), as in equation 19,

    W_mn = (R_m φ(q_m))ᵀ (R_n φ(k_n)),   Z_mn = φ(q_m)ᵀ φ(k_n),

    which does not approximate rotary softmax attention, whatever m is. With "before" it does,

    W_mn = Z_mn = φ(R_m q_m)ᵀ φ(R_n k_n),

    but depends on differences of positions only in the mean over ω.
    """

    projection: torch.Tensor

    def __init__(self, config: RoFormerConfig, layer_idx: int):
        super().__init__(config, layer_idx)
        self.rotates_first = config.linear_rotation == "before"
        self.config, self.layer_idx = config, layer_idx
        self.scaling = config.head_dim**-0.25
        self.register_buffer("projection", self.draw().to(torch.get_default_device()))

    def draw(self, number: int = 0) -> torch.Tensor:
        """Return the ω_i, shape (m, d), a function of the config's seed, the layer and the number of earlier draws."""
        m, d, seed = self.config.linear_num_features, self.config.head_dim, 0
        for part in (self.config.linear_seed, self.layer_idx, number):
            seed = (seed * 1_000_003 + part + 1) % 2**63
        with torch.device("cpu"):  # models are created on the meta device
            generator = torch.Generator().manual_seed(seed)
            gaussian = torch.randn(-(-m // d), d, d, generator=generator, dtype=torch.float64)
            orthogonal, triangle = torch.linalg.qr(gaussian.mT)
            # The signs make the columns uniform whatever signs the routine prefers. Lengths are of Gaussian vectors.
            orthogonal = orthogonal * triangle.diagonal(dim1=-2, dim2=-1).sign()[:, None]
            lengths = torch.randn(m, d, generator=generator, dtype=torch.float64).norm(dim=-1, keepdim=True)
        return (orthogonal.mT.flatten(0, 1)[:m] * lengths).to(torch.get_default_dtype())

    def initialize(self) -> None:
        """Draw the ω_i anew."""
        init.copy_(self.projection, self.draw())

    def query_exponents(self, query: torch.Tensor) -> torch.Tensor:
        return F.linear(query * self.scaling, self.projection.to(query.dtype))  # |q̃|² / 2 is a constant per query

    def key_exponents(self, key: torch.Tensor) -> torch.Tensor:
        key = key * self.scaling
        return F.linear(key, self.projection.to(key.dtype)) - key.square().sum(-1, keepdim=True) / 2


FEATURE_MAPS = {"elu": EluMap, "softmax": SoftmaxMap, "cosine": CosineMap, "favor": FavorMap}


def in_chunks(x: torch.Tensor, size: int, repeats_last: bool = False) -> torch.Tensor:
    """Reshape (b, s, h, …) to (b, h, c, size, …), padded at the end with 0, or if `repeats_last` with the last
    position."""
    s = x.shape[1]
    # At least two chunks in a traced graph, so that it holds for any number.
    padding = 2 * size if is_traced() else -s % size
    if padding:
        last = x[:, -1:] if repeats_last else torch.zeros_like(x[:, -1:])
        x = torch.cat([x, last.expand(-1, padding, *x.shape[2:])], dim=1)
    if is_traced():  # an exporter cannot tell that the chunks divide the length
        x = x[:, torch.arange(s // size + 2, device=x.device)[:, None] * size + torch.arange(size, device=x.device)]
    else:
        x = x.unflatten(1, (-1, size))
    return x.transpose(2, 3).transpose(1, 2).contiguous()  # for the products


def out_of_chunks(x: torch.Tensor, s: int) -> torch.Tensor:
    """Reshape (b, h, c, n, …) to (b, s, h, …): the inverse of `in_chunks` for s tokens."""
    x = x.transpose(1, 2).transpose(2, 3).flatten(1, 2)
    # An exporter cannot tell that the chunks are long enough for a slice.
    return x.index_select(1, torch.arange(s, device=x.device)) if is_traced() else x[:, :s]


def running_maximum(x: torch.Tensor, before: torch.Tensor | None) -> torch.Tensor:
    """Return the cumulative maximum along dimension 1 of x, shape (b, s, h), starting from `before`, shape (b, h)."""
    if before is not None:
        x = torch.cat([torch.maximum(x[:, :1], before[:, None]), x[:, 1:]], dim=1)
    if not is_traced():
        return x.cummax(dim=1).values
    # ONNX has no cumulative maximum: take it over all pairs of positions of a chunk, then over all pairs of chunks.
    chunks = in_chunks(x, CHUNK)  # (b, h, c, n)
    within = _largest(chunks, 0)
    earlier = _largest(within[..., -1], -1)  # (b, h, c)
    return out_of_chunks(torch.maximum(within, earlier[..., None]), x.shape[1])


def _largest(x: torch.Tensor, diagonal: int) -> torch.Tensor:
    """Return the largest value along the last dimension up to each position (diagonal 0) or before it (-1)."""
    n = x.shape[-1]
    visible = torch.ones(n, n, dtype=torch.bool, device=x.device).tril(diagonal)
    return x[..., None, :].masked_fill(~visible, -torch.inf).amax(-1)


def counted_steps(model: Any) -> torch.Tensor | None:
    """Return the number of earlier training steps of a `RoFormerModel`, as a 0-d tensor, if this call may redraw random
    features: in training, unless the model is frozen."""
    steps = getattr(model.encoder, "training_steps", None)
    may_redraw = (
        steps is not None
        and model.config.linear_redraw_interval is not None
        and model.training
        and not is_transformed()
        and can_be_read(steps)
        and any(True for _ in _trained_weights(model))
    )
    return steps if may_redraw else None


def redraw_features(model: Any, counted_steps: int) -> None:
    """Redraw the random features if that is due after so many training steps, and count this step.

    They change only if the weights have changed since the previous call: until then a backward pass may recompute
    earlier calls, which needs the features of those calls.
    """
    number, rest = divmod(counted_steps, model.config.linear_redraw_interval)
    is_due = number > 0 and rest == 0
    if is_due:
        before, now = getattr(model, "weights_before_redrawing", None), _sums_of_weights(model)
        if before is not None and torch.equal(before, now):
            return
        for module in model.modules():
            if isinstance(module, FavorMap):
                module.projection.copy_(module.draw(number))  # in place: replicas of a module share their storage
    if is_due or torch.is_grad_enabled():
        model.encoder.training_steps += 1
        if (counted_steps + 1) % model.config.linear_redraw_interval == 0:
            model.weights_before_redrawing = _sums_of_weights(model)


@torch.no_grad()
def _sums_of_weights(model: nn.Module) -> torch.Tensor:
    """Return the sum of each trained weight: a fingerprint that shows whether the weights have changed."""
    sums = []
    for weight in _trained_weights(model):
        total: Any = weight.sum(dtype=torch.float64 if has_float64(weight.device) else torch.float32)
        sums.append(total.full_tensor() if hasattr(total, "full_tensor") else total)  # of a sharded weight
    return torch.stack([total.to(sums[0]) for total in sums])


def _trained_weights(model: nn.Module) -> Iterator[torch.Tensor]:
    for module in model.modules():
        # A replica of nn.DataParallel has no parameters, but these copies of them (torch/nn/parallel/replicate.py).
        weights = getattr(module, "_former_parameters", module._parameters)
        yield from (weight for weight in weights.values() if weight is not None and weight.requires_grad)
