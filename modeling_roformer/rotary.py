"""Rotary position embedding (RoPE): equations 12 to 16 and 34 of the RoFormer paper (arXiv:2104.09864).

NEZHA's relative positions are in nezha.py; linear attention (linear_attention.py) rotates features. A query or key at
position m is multiplied by the block-diagonal rotation matrix of equation 15,

    R(m) = diag(R_1, …, R_{d/2}),   R_i = [[cos m·θ_i, −sin m·θ_i],
                                           [sin m·θ_i,  cos m·θ_i]],   θ_i = 10000^(−2(i−1)/d),

so that the product of a query at m and a key at n depends only on n − m (equation 16): R(m)ᵀ R(n) = R(n − m). The pairs
are dimensions (1, 2), (3, 4), … ("interleaved"), as in the original.

For texts longer than in training the frequencies are scaled: interpolation, dynamic NTK, YaRN. They are transformers'
(`ROPE_INIT_FUNCTIONS`), in float64 and as pure functions of the config and, for dynamic NTK, of each sequence's length:
no call and no other text of the batch changes them.

Trainable frequencies are a parameter `encoder.log_inv_freq_offset`, the offset of their logarithms from those of
`rope_parameters`, which begins at 0. So a step of the optimiser changes each frequency in proportion to itself, none
becomes negative, and weight decay leads back to the initial ones. Files and state dicts have the frequencies, too, as
`encoder.inv_freq` in float32. Loading takes these, since files of version 0.2 have no offset, and takes the offset only
from a file without them.

The baselines that the paper compares with add a vector p_i to the embedding of the token at position i (equation 3),

    f_t(x_i, i) = W_t (x_i + p_i),   t ∈ {q, k, v}:

a row of a trained table in BERT ("learned"), and equation 4 in the original transformer (arXiv:1706.03762,
"sinusoidal"),

    p_{i,2t} = sin(i / 10000^(2t/d)),   p_{i,2t+1} = cos(i / 10000^(2t/d)),   d the width of the embeddings.

Dimensions in the shapes: b batch, s sequence length, h heads, d head_dim, or for the baselines embedding_size.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .configuration import RoFormerConfig
from .inputs import can_be_read, has_float64, is_traced, is_transformed
from .saved_fields import PAPER_ROPE

THETA = 10000.0
LARGEST_JOINED = 2**17  # maximum size of the queries that `rotate_query_and_key` joins with the keys
rotate_by_kernel: Callable | None = None  # `rotary_kernel.use_rotary_kernel` sets it
OFFSET, FREQUENCIES = "log_inv_freq_offset", "inv_freq"  # of trainable frequencies, in the encoder


def inverse_frequencies(head_dim: int, theta: float = THETA, device: torch.device | str | None = None) -> torch.Tensor:
    """Return θ_1, …, θ_{d/2} of equation 15, float64, shape (head_dim / 2,), in radians per position."""
    if device is not None and not has_float64(torch.device(device)):
        device = "cpu"
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64, device=device) / head_dim
    return 1.0 / torch.pow(theta, exponents)


def rotary_position_embeddings(position_ids: torch.Tensor, inv_freq: torch.Tensor) -> torch.Tensor:
    """Compute cosine and sine of the angles m·θ_i of equation 15, rounded once, to float32, whatever the model's dtype.

    Angles are computed in float64 for the given positions: there is no table and so no maximum length, and no drift
    with the position (in float32, angles at position 1,500 are off by up to 6e-5). A buffer would be garbage after
    `from_pretrained`, which creates modules on the meta device.

    Args:
        position_ids: integer positions, shape (b, s), or (1, s) if all texts share them.
        inv_freq: the frequencies, shape (d / 2,), or (b, d / 2) or (b, s, d / 2) if texts differ.

    Returns:
        The pairs (cos m·θ_i, sin m·θ_i), float32, shape (b or 1, s, 1, d / 2, 2): ready for `rotate`, and as complex
        numbers e^(i·m·θ_i) without a copy.

    ```python
    >>> rotation = rotary_position_embeddings(torch.tensor([[0, 1, 2]]), inverse_frequencies(head_dim=4))
    >>> cos, sin = rotation.unbind(-1)
    >>> cos[0, :, 0]
    tensor([[ 1.0000,  1.0000],
            [ 0.5403,  0.9999],
            [-0.4161,  0.9998]])
    ```
    """
    device = position_ids.device
    if not has_float64(device):
        position_ids = position_ids.cpu()
    inv_freq = inv_freq.to(device=position_ids.device, dtype=torch.float64)
    inv_freq = inv_freq[:, None] if inv_freq.ndim == 2 else inv_freq
    angles = (position_ids.to(torch.float64)[..., None] * inv_freq)[..., None, :]
    # ONNX Runtime before 1.29 computes sines in float64, but no cosines: cos x = 1 − 2 sin² (x / 2).
    cos = 1 - 2 * (angles / 2).sin() ** 2 if torch.compiler.is_exporting() else angles.cos()
    return torch.stack((cos, angles.sin()), dim=-1).to(device=device, dtype=torch.float32)


def rotate(x: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
    """Multiply every head's vector by R(m) of its position (equation 34).

    Args:
        x: queries, keys or values, shape (b, s, h, d).
        rotation: from `rotary_position_embeddings`, shape (b or 1, s, 1, d / 2, 2).

    Returns:
        A tensor of the shape and dtype of x. In half precision the products are formed in float32 and rounded once.
    """
    pairs = x.unflatten(-1, (-1, 2))  # (b, s, h, d / 2, 2)
    if x.device.type in ("cpu", "cuda") and not is_traced():
        # Equations 12 and 13: a pair is a complex number, and its rotation the product with e^(i·m·θ). One kernel is
        # several times faster than the five of the real form. Compilers fuse those, and cannot export complex numbers.
        pairs = pairs if x.dtype == torch.float64 else pairs.float()
        rotated = torch.view_as_real(torch.view_as_complex(pairs) * torch.view_as_complex(rotation))
    else:
        (even, odd), (cos, sin) = pairs.unbind(-1), rotation.unbind(-1)  # x_1, x_3, … and x_2, x_4, …
        rotated = torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1)
    return rotated.flatten(-2).to(x.dtype)


def rotate_query_and_key(
    query: torch.Tensor, key: torch.Tensor, rotation: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate queries and keys of the same positions, both of shape (b, s, h, d), as `rotate` does."""
    if rotate_by_kernel is not None and (rotated := rotate_by_kernel(query, key, rotation)) is not None:
        return rotated
    if query.dtype in (torch.float16, torch.bfloat16) and not is_traced() and query.numel() <= LARGEST_JOINED:
        # Four operations in place of six: with few numbers, starting one takes longer than copying them.
        query, key = rotate(torch.cat((query, key), dim=2), rotation).chunk(2, dim=2)
        return query, key
    return rotate(query, rotation), rotate(key, rotation)


def scaled_inverse_frequencies(
    config: RoFormerConfig,
    lengths: int | torch.Tensor,
    device: torch.device,
    width: int | None = None,
    offset: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the frequencies θ_i of a config, float64, in radians per position.

    Args:
        lengths: length of each sequence, shape (b,), or of each token's, shape (b, s), or one number for all; read by
            dynamic NTK only.
        width: number of dimensions to rotate; `config.rotary_dim` if None.
        offset: `log_inv_freq_offset` of trained frequencies, shape (width / 2,).

    Returns:
        Shape (width / 2,), or (*lengths.shape, width / 2) if they differ.
    """
    # NEZHA and translation have no such field.
    parameters, width = getattr(config, "rope_parameters", PAPER_ROPE), width or config.rotary_dim
    plain = inverse_frequencies(width, parameters["rope_theta"], device=device)
    scale = SCALINGS.get(parameters["rope_type"])
    scaled = plain if scale is None else scale(plain, parameters, lengths)
    # A device map may put the offset on another GPU.
    return scaled if offset is None else scaled * frequency_ratios(config, offset).to(scaled.device)


_kept: dict[tuple, torch.Tensor] = {}


def kept_frequencies(
    config: RoFormerConfig,
    lengths: int | torch.Tensor,
    position_ids: torch.Tensor,
    width: int,
    offset: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return `scaled_inverse_frequencies`, computed once per device where neither lengths nor training change them.

    All callers share the tensor: do not change it. `position_ids` are those of the call.
    """
    device = position_ids.device
    if offset is not None or depends_on_length(config) or not can_be_read(position_ids):
        return scaled_inverse_frequencies(config, lengths, device, width, offset)
    key = device, width, repr(getattr(config, "rope_parameters", PAPER_ROPE))
    if key in _kept:
        return _kept[key]
    frequencies = scaled_inverse_frequencies(config, lengths, device, width)
    if not is_transformed():
        if device.type == "cuda":  # another stream may read them at once
            torch.cuda.current_stream(device).synchronize()
        _kept[key] = frequencies
    return frequencies


def interpolate(inv_freq: torch.Tensor, parameters: dict, lengths: int | torch.Tensor) -> torch.Tensor:
    """Return the frequencies of "linear": positions are divided by the factor (arXiv:2306.15595)."""
    return inv_freq / parameters["factor"]


def raise_base(inv_freq: torch.Tensor, parameters: dict, lengths: int | torch.Tensor) -> torch.Tensor:
    """Return the frequencies of "dynamic" (NTK-aware): those of a larger θ for texts longer than in training.

    The base grows by a power of d / (d − 2): θ_1 stays, and the lowest frequency is divided by `ntk_factor`.
    """
    trained, factor, width = parameters["original_max_position_embeddings"], parameters["factor"], 2 * len(inv_freq)
    if isinstance(lengths, torch.Tensor):
        lengths = lengths.to(inv_freq).clamp(min=trained)[..., None]
    else:
        lengths = max(lengths, trained)
    ntk_factor = factor * lengths / trained - (factor - 1)
    exponents = torch.arange(0, width, 2, dtype=inv_freq.dtype, device=inv_freq.device) / max(width - 2, 1)
    return inv_freq * ntk_factor**-exponents


def interpolate_by_parts(inv_freq: torch.Tensor, parameters: dict, lengths: int | torch.Tensor) -> torch.Tensor:
    """Return the frequencies of "yarn": low ones are interpolated, high ones stay."""
    ramp = yarn_ramp(parameters, 2 * len(inv_freq), inv_freq.device)
    return inv_freq * (1 - ramp) + inv_freq / parameters["factor"] * ramp


SCALINGS = {"linear": interpolate, "dynamic": raise_base, "yarn": interpolate_by_parts}


def yarn_ramp(parameters: dict, width: int, device: torch.device) -> torch.Tensor:
    """Return how far YaRN interpolates each frequency: 0 not at all, 1 by the whole factor; shape (width / 2,).

    The ramp is transformers', linear in i, between the dimensions that turn `beta_fast` and `beta_slow` times within
    the trained length. That of the paper (arXiv:2309.00071, section 3.2) is linear in the number of turns, between the
    same two, and lowers the frequencies between them further: at a factor of 8 to a value up to 2.4 times smaller.
    """

    def dimension(turns: float) -> float:
        trained, theta = parameters["original_max_position_embeddings"], parameters["rope_theta"]
        return width * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension(parameters.get("beta_fast") or 32), dimension(parameters.get("beta_slow") or 1)
    if parameters.get("truncate") is not False:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    high += 0.001 if low == high else 0.0
    return ((torch.arange(width // 2, dtype=torch.float64, device=device) - low) / (high - low)).clamp(0, 1)


def attention_factor(config: RoFormerConfig) -> float:
    """Return YaRN's factor on the scores: the square of transformers' factor, which multiplies both query and key."""
    parameters = getattr(config, "rope_parameters", PAPER_ROPE)
    return yarn_factor(parameters) ** 2 if parameters["rope_type"] == "yarn" else 1.0


def yarn_factor(parameters: dict) -> float:
    """Return the factor on queries and on keys: the given one, or 0.1·ln(factor) + 1, with DeepSeek's weights if
    given."""

    def at(mscale: float) -> float:
        return 0.1 * mscale * math.log(parameters["factor"]) + 1.0

    if (factor := parameters.get("attention_factor")) is not None:
        return factor
    mscale, mscale_all_dim = parameters.get("mscale"), parameters.get("mscale_all_dim")
    return at(mscale) / at(mscale_all_dim) if mscale and mscale_all_dim else at(1.0)


def depends_on_length(config: RoFormerConfig) -> bool:
    """Return whether the frequencies depend on a sequence's length, so that rotated keys cannot be cached."""
    return getattr(config, "rope_parameters", PAPER_ROPE)["rope_type"] == "dynamic"


def depends_on_positions(config: Any) -> bool:
    """Return whether outputs depend on the positions themselves: equation 16 leaves only their differences."""
    if config.position_encoding == "rotary":  # random features of rotated queries and keys are an approximation
        return getattr(config, "rotary_value", False) or getattr(config, "linear_rotation", "after") == "before"
    return config.position_encoding in ("learned", "sinusoidal")


def initial_frequencies(config: RoFormerConfig, device: torch.device) -> torch.Tensor:
    """Return the frequencies of `rope_parameters`, float64, rounded as in files."""
    return scaled_inverse_frequencies(config, 1, device).float().double()


def frequencies_of(config: RoFormerConfig, offset: torch.Tensor) -> torch.Tensor:
    """Return the frequencies that trained offsets stand for, float32, as in files."""
    initial = initial_frequencies(config, offset.device)
    return (initial * offset.to(initial).exp()).float()


def offset_of(config: RoFormerConfig, frequencies: torch.Tensor, name: str) -> torch.Tensor:
    """Return the offsets of a file's frequencies; raise a ValueError unless these are positive and finite."""
    initial = initial_frequencies(config, frequencies.device)
    if frequencies.shape != initial.shape:
        return frequencies  # the caller compares shapes
    is_wrong = ~((frequencies > 0) & frequencies.isfinite())
    if not frequencies.is_meta and is_wrong.any():
        i = int(is_wrong.int().argmax())
        raise ValueError(
            f"{name}[{i}] is {frequencies[i]:.3g}, but a frequency must be positive: use an earlier checkpoint of this "
            "training"
        )
    return (frequencies.to(initial) / initial).log().float()


def frequency_ratios(config: RoFormerConfig, offset: torch.Tensor) -> torch.Tensor:
    """Return the ratios, float64, of the trained frequencies to those of the config.

    Frequencies are rounded as in files, so that a saved model computes the same.
    """
    return frequencies_of(config, offset) / initial_frequencies(config, offset.device)


def write_frequencies(encoder: Any, state_dict: dict, prefix: str, *args) -> None:
    """Put the present frequencies into a new state dict."""
    state_dict[f"{prefix}{FREQUENCIES}"] = frequencies_of(encoder.config, state_dict[f"{prefix}{OFFSET}"])


def read_frequencies(encoder: Any, state_dict: dict, prefix: str, *args) -> None:
    """Put the offset of the frequencies into a state dict that is loaded."""
    name = f"{prefix}{FREQUENCIES}"
    if name in state_dict:
        state_dict[f"{prefix}{OFFSET}"] = offset_of(encoder.config, state_dict[name], name)


class LearnedPositionEmbeddings(nn.Embedding):
    """BERT's table of shape (max_position_embeddings, d): maps positions of shape (b or 1, s) to (b or 1, s, d)."""


class SinusoidalPositionEmbeddings(nn.Module):
    """Equation 4, without a table: there is no maximum length, and nothing to load or to save.

    Args:
        width: d.
        in_halves: all sines before all cosines, as in Marian, in place of pairs.
        scale: factor of the vectors.

    ```python
    >>> SinusoidalPositionEmbeddings(4)(torch.tensor([[0, 1]]))
    tensor([[[0.0000, 1.0000, 0.0000, 1.0000],
             [0.8415, 0.5403, 0.0100, 0.9999]]])
    ```
    """

    def __init__(self, width: int, in_halves: bool = False, scale: float = 1.0):
        super().__init__()
        self.width = width
        self.in_halves = in_halves
        self.scale = scale

    def forward(self, position_ids: torch.Tensor) -> torch.Tensor:
        """Map positions of shape (b or 1, s) to vectors of shape (b or 1, s, d), float32."""
        rotation = rotary_position_embeddings(position_ids, inverse_frequencies(self.width, device=position_ids.device))
        vectors = rotation.squeeze(2).flip(-1)  # sine before cosine
        return self.scale * (vectors.transpose(-1, -2) if self.in_halves else vectors).flatten(2)


def make_position_embeddings(config: RoFormerConfig) -> nn.Module | None:
    """Return the module of position embeddings, or None if the config adds none."""
    width = config.embedding_size or config.hidden_size
    if config.position_encoding == "learned":
        return LearnedPositionEmbeddings(config.max_position_embeddings, width)
    if config.position_encoding == "sinusoidal":
        return SinusoidalPositionEmbeddings(width, scale=config.sinusoidal_scale)
    return None


def longest_text(config: RoFormerConfig) -> int | None:
    """Return the number of positions, None if unlimited."""
    return config.max_position_embeddings if config.position_encoding == "learned" else None
