"""Rotary position embedding against the paper: equations 12 to 16, 34, and the decay of section 3.4.3."""

import math

import pytest
import torch
from helpers.properties import max_examples
from hypothesis import given
from hypothesis import strategies as st

from modeling_roformer.rotary import inverse_frequencies, rotary_position_embeddings, rotate, rotate_query_and_key

EVEN = st.integers(1, 24).map(lambda half: 2 * half)
POSITION = st.integers(0, 20_000)


def rotation_matrix(position: int, head_dim: int) -> torch.Tensor:
    """R(m) of equation 15, written out, in float64."""
    matrix = torch.zeros(head_dim, head_dim, dtype=torch.float64)
    for i in range(head_dim // 2):
        angle = position * 10000.0 ** (-2 * i / head_dim)
        block = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
        matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.tensor(block, dtype=torch.float64)
    return matrix


def rotate_at(x: torch.Tensor, position: int) -> torch.Tensor:
    """One vector, rotated by the package."""
    rotation = rotary_position_embeddings(torch.tensor([[position]]), inverse_frequencies(x.shape[-1]))
    return rotate(x.view(1, 1, 1, -1), rotation).view(-1)


@given(head_dim=EVEN, position=POSITION, seed=st.integers(0, 99))
@max_examples(60)
def test_is_the_dense_matrix_of_equation_15(head_dim, position, seed):
    x = torch.randn(head_dim, generator=torch.Generator().manual_seed(seed))
    expected = rotation_matrix(position, head_dim) @ x.double()
    torch.testing.assert_close(rotate_at(x, position).double(), expected, atol=2e-6, rtol=0)


@given(head_dim=EVEN, m=st.integers(0, 3000), n=st.integers(0, 3000), shift=POSITION, seed=st.integers(0, 99))
@max_examples(60)
def test_product_depends_on_the_distance_alone(head_dim, m, n, shift, seed):
    """Equation 16."""
    query, key = torch.randn(2, head_dim, generator=torch.Generator().manual_seed(seed))
    here = rotate_at(query, m).double() @ rotate_at(key, n).double()
    there = rotate_at(query, m + shift).double() @ rotate_at(key, n + shift).double()
    torch.testing.assert_close(there, here, atol=2e-5, rtol=0)


@pytest.mark.parametrize("head_dim", [64, 128])
def test_decay_with_distance(head_dim):
    """Section 3.4.3: |q·R(n − m)·k| ≤ max|h_{i+1} − h_i| · Σ|S_j| (equation 37), and the bound's mean decays."""
    query, key = torch.randn(2, head_dim, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    # h_i = q_i·conj(k_i) over pairs taken as complex numbers; S_j = Σ_{i<j} e^{i(m−n)θ_i} (equations 35 to 37)
    h = torch.view_as_complex(query.view(-1, 2)) * torch.view_as_complex(key.view(-1, 2)).conj()
    difference = (torch.cat([h[1:], torch.zeros(1, dtype=h.dtype)]) - h).abs().max()
    bounds = []
    for distance in range(257):
        angles = distance * inverse_frequencies(head_dim)
        partial_sums = torch.polar(torch.ones_like(angles), angles).cumsum(0).abs()
        product = rotate_at(query, distance) @ rotate_at(key, 0)
        assert product.abs() <= difference * partial_sums.sum() * (1 + 1e-6)
        bounds.append(partial_sums.mean().item())
    # Figure 2: far tokens are bounded lower than near ones.
    windows = [sum(bounds[i : i + 64]) / 64 for i in range(0, 256, 64)]
    assert windows == sorted(windows, reverse=True)
    assert bounds[0] == pytest.approx((head_dim / 2 + 1) / 2)


def test_angles_are_exact_at_any_position():
    """Against exact arithmetic: float32 angles would be off by 6e-5 at position 1,500, and by 1e-2 at a million."""
    positions = torch.tensor([[1, 511, 1535, 16_383, 1_000_000]])
    cos, sin = rotary_position_embeddings(positions, inverse_frequencies(64)).unbind(-1)
    for column, position in enumerate(positions[0].tolist()):
        for i in range(32):
            angle = position / 10000 ** (2 * i / 64)
            assert abs(cos[0, column, 0, i].item() - math.cos(angle)) < 6e-8
            assert abs(sin[0, column, 0, i].item() - math.sin(angle)) < 6e-8


def test_equals_the_table_of_transformers():
    from transformers.models.roformer.modeling_roformer import RoFormerSinusoidalPositionalEmbedding

    table = RoFormerSinusoidalPositionalEmbedding(1536, 64).create_weight()
    cos, sin = rotary_position_embeddings(torch.arange(1536)[None], inverse_frequencies(64)).unbind(-1)
    torch.testing.assert_close(torch.cat([sin, cos], -1)[0, :, 0], table, atol=6e-8, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_rounds_once(dtype):
    x = torch.randn(2, 600, 3, 64, generator=torch.Generator().manual_seed(0)).to(dtype)
    rotation = rotary_position_embeddings(torch.arange(600)[None], inverse_frequencies(64))
    assert rotation.dtype == torch.float32
    rotated = rotate(x, rotation)
    assert rotated.dtype == dtype
    torch.testing.assert_close(rotated, rotate(x.double(), rotation).to(dtype), atol=1e-6, rtol=torch.finfo(dtype).eps)


def test_positions_are_per_sample():
    position_ids = torch.tensor([[0, 1, 2, 3], [7, 3, 900, 0]])
    x = torch.randn(2, 4, 2, 8)
    rotated = rotate(x, rotary_position_embeddings(position_ids, inverse_frequencies(8)))
    for sample in range(2):
        for token in range(4):
            for head in range(2):
                expected = rotate_at(x[sample, token, head], position_ids[sample, token].item())
                torch.testing.assert_close(rotated[sample, token, head], expected)


@pytest.mark.slow
def test_compiles_whole_and_gives_the_same():
    """The compiled form is the real one of equation 34; the eager one multiplies complex numbers."""

    def embed(x, position_ids):
        return rotate(x, rotary_position_embeddings(position_ids, inverse_frequencies(x.shape[-1])))

    x, position_ids = torch.randn(2, 33, 4, 16), torch.arange(33)[None]
    # Inductor does not quote torch's path for the linker, so where it has a space only the graph is compared.
    backend = "aot_eager" if " " in torch.__file__ else "inductor"
    compiled = torch.compile(embed, fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(x, position_ids), embed(x, position_ids), atol=1e-6, rtol=0)


def test_gradient_is_the_inverse_rotation():
    x = torch.randn(1, 5, 2, 8, dtype=torch.float64, requires_grad=True)
    rotation = rotary_position_embeddings(torch.arange(5)[None], inverse_frequencies(8))
    weight = torch.randn_like(x)
    rotate(x, rotation).backward(weight)
    backwards = rotation * torch.tensor([1.0, -1.0])  # by the negative angle
    torch.testing.assert_close(x.grad, rotate(weight, backwards))


@pytest.mark.parametrize("tokens", [1, 7, 200])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_query_and_key_together_are_each_alone(dtype, tokens, monkeypatch):
    query, key = torch.randn(2, 3, tokens, 4, 16, generator=torch.Generator().manual_seed(0)).to(dtype).unbind(0)
    rotation = rotary_position_embeddings(torch.arange(tokens)[None], inverse_frequencies(16))
    for few in (0, query.numel()):
        monkeypatch.setattr("modeling_roformer.rotary.LARGEST_JOINED", few)
        inputs = [x.clone().requires_grad_() for x in (query, key)]
        rotated = rotate_query_and_key(*inputs, rotation)
        rotated[0].sum().backward(retain_graph=True)  # a gradient of stride 0
        rotated[1].square().sum().backward()
        for x, y, one in zip(inputs, rotated, (query, key), strict=True):
            assert torch.equal(y, rotate(one, rotation)) and y.dtype == dtype
            assert x.grad is not None and x.grad.isfinite().all()
        backwards = rotation * torch.tensor([1.0, -1.0])
        assert torch.equal(inputs[0].grad, rotate(torch.ones_like(query), backwards))
