"""examples/paper/decay.py: Figure 2 against the bound of section 3.4.3 written out, and what is refused."""

import cmath
import re

import pytest
import torch
from decay import mean_products, upper_bound
from helpers.script_process import run

from modeling_roformer.rotary import inverse_frequencies, rotary_position_embeddings, rotate

SCRIPT = "paper/decay.py"


def bound(distance: int, head_dim: int, theta: float) -> float:
    """1/(d/2) Σ_{i=1}^{d/2} |S_i|, S_i = Σ_{j=0}^{i−1} e^{ιrθ_j}."""
    total = 0.0
    for i in range(1, head_dim // 2 + 1):
        total += abs(sum(cmath.exp(1j * distance * theta ** (-2 * j / head_dim)) for j in range(i)))
    return total / (head_dim // 2)


@pytest.mark.parametrize(("head_dim", "theta"), [(2, 10000.0), (8, 500.0), (64, 10000.0), (128, 1e6), (6, 0.5)])
def test_the_bound_is_the_papers(head_dim, theta):
    distances = torch.tensor([0, 1, 2, 17, 256, 40_000])
    expected = [bound(distance, head_dim, theta) for distance in distances.tolist()]
    assert upper_bound(distances, head_dim, theta).tolist() == pytest.approx(expected, rel=1e-6)


def test_it_bounds_products_of_rotated_vectors():
    """Equation 37, for this package's rotation: the largest step between neighbouring h_i, times Σ |S_i|."""
    torch.manual_seed(0)
    head_dim, distances = 32, torch.arange(300)
    query, key = torch.randn(2, head_dim, dtype=torch.float64)
    rotation = rotary_position_embeddings(distances[None], inverse_frequencies(head_dim))
    products = (rotate(key.expand(1, 300, 1, head_dim), rotation)[0, :, 0] @ query).abs()
    pairs = [torch.view_as_complex(vector.view(-1, 2)) for vector in (query, key)]
    h = torch.cat([pairs[0] * pairs[1].conj(), torch.zeros(1)])  # h_{d/2} is 0
    limit = h.diff().abs().max() * head_dim / 2 * upper_bound(distances, head_dim)
    assert (products <= limit + 1e-5).all()


def test_products_are_means_over_pairs_of_vectors():
    torch.manual_seed(0)
    queries, keys, distances, theta = *torch.randn(2, 3, 4), [0, 1, 5], 100.0
    expected = []
    for distance in distances:
        total = 0.0
        for query, key in zip(queries.tolist(), keys.tolist(), strict=True):
            product = sum(
                complex(*query[2 * i : 2 * i + 2]).conjugate()
                * complex(*key[2 * i : 2 * i + 2])
                * cmath.exp(1j * distance * theta ** (-2 * i / 4))
                for i in range(2)
            )
            total += abs(product.real)
        expected.append(total / 3)
    assert mean_products(queries, keys, torch.tensor(distances), theta).tolist() == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_the_script_draws_and_prints_the_bounds(tmp_path):
    picture = tmp_path / "decay.png"
    picture.write_text("an older one")
    code, out, err = run(SCRIPT, tmp_path, picture, "--head-dim", 16, "--theta", 500, "--longest", 3000)
    assert code == 0, err
    first, last = re.search(r"the bound is ([\d.]+) at distance 0, and ([\d.]+) at 3,000$", out.strip()).groups()
    assert (first, last) == (f"{bound(0, 16, 500):.2f}", f"{bound(3000, 16, 500):.2f}")
    assert picture.read_bytes().startswith(b"\x89PNG") and list(tmp_path.iterdir()) == [picture]
