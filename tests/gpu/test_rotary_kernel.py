"""The rotary kernel against the formula in float64: on a GPU by `make test-gpu`, and by `make test-slow` on a CPU, in
Triton's interpreter."""

import json
import os
import re
import runpy
import subprocess
import sys

import pytest
import torch
from helpers.paths import REPOSITORY
from helpers.small_models import small_model
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

from modeling_roformer import rotary_kernel
from modeling_roformer.rotary_kernel import rotate_by_kernel, use_rotary_kernel, works_on

pytestmark = pytest.mark.cuda
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cpu" if INTERPRETED else "cuda:0")
# One pair; widths and heads that are no powers of 2; heads and a width that do not fit into one program.
SHAPES = [(1, 1, 1, 2), (2, 5, 3, 6), (3, 2, 12, 64), (1, 3, 5, 48), (2, 2, 70, 64), (1, 2, 3, 2050), (2, 0, 3, 6)]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def on_this_device(monkeypatch):
    monkeypatch.setattr(rotary_kernel, "DEVICE", DEVICE.type)
    works_on.cache_clear()


def normal(*shape, dtype=torch.float32):
    return torch.randn(shape).to(DEVICE, dtype)


def make_inputs(b, s, h, d, dtype=torch.float32, texts=1):
    """Return query, key and rotation; `texts` is 1 or b."""
    angles = 7 * normal(texts, s, 1, d // 2)
    return (
        normal(b, s, h, d, dtype=dtype),
        normal(b, s, h, d, dtype=dtype),
        torch.stack((angles.cos(), angles.sin()), -1),
    )


def rotated(x, rotation):
    """Equation 34, written out, in float64."""
    even, odd = x.double()[..., 0::2], x.double()[..., 1::2]
    cos, sin = rotation.double()[..., 0], rotation.double()[..., 1]
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)


def check(found, expected, dtype):
    """Assert that values of a dtype are those of float64, but for the products in float32 and one rounding."""
    assert found.dtype == dtype and found.is_contiguous()
    rounding = 0.0 if dtype == torch.float32 else torch.finfo(dtype).eps / 2
    if INTERPRETED and dtype == torch.bfloat16:  # the interpreter cuts the digits off
        rounding *= 2
    torch.testing.assert_close(found.double(), expected, rtol=rounding, atol=2e-6)


@pytest.mark.parametrize("per_text", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_is_the_rotation_in_float64_rounded_once(shape, dtype, per_text):
    query, key, rotation = make_inputs(*shape, dtype=dtype, texts=shape[0] if per_text else 1)
    for x, found in zip((query, key), rotate_by_kernel(query, key, rotation), strict=True):
        check(found, rotated(x, rotation), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_are_those_of_the_formula(dtype):
    *inputs, rotation = make_inputs(2, 5, 3, 6, dtype=dtype, texts=2)
    inputs = [x.requires_grad_() for x in inputs]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    weights = [normal(2, 5, 3, 6, dtype=dtype) for _ in inputs]
    found = torch.autograd.grad(rotate_by_kernel(*inputs, rotation), inputs, weights)
    expected = torch.autograd.grad([rotated(x, rotation) for x in exact], exact, [x.double() for x in weights])
    for ours, theirs in zip(found, expected, strict=True):
        check(ours, theirs, dtype)


def test_gradient_of_a_sum():
    """It is one number, expanded: all strides are 0. The key has none."""
    query, key, rotation = make_inputs(2, 5, 3, 6)
    exact = query.double().requires_grad_()
    rotate_by_kernel(query.requires_grad_(), key.requires_grad_(), rotation)[0].sum().backward()
    rotated(exact, rotation).sum().backward()
    check(query.grad, exact.grad, torch.float32)
    assert not key.grad.any()


def test_second_derivatives():
    query, key, rotation = make_inputs(2, 5, 3, 6)
    exact, query = query.double().requires_grad_(), query.requires_grad_()
    second = []
    for x, y in ((query, rotate_by_kernel(query, key, rotation)[0]), (exact, rotated(exact, rotation))):
        (gradient,) = torch.autograd.grad((y**3).sum(), x, create_graph=True)
        second += torch.autograd.grad((gradient**2).sum(), x)
    torch.testing.assert_close(second[0].double(), second[1], rtol=1e-5, atol=1e-3)


def test_inputs_of_any_strides():
    """Query in the order of attention, key the first dimensions of a wider head that is one of several tensors, and
    cosines apart from sines."""
    query = normal(2, 3, 5, 6).transpose(1, 2)
    key = normal(2, 5, 3, 3, 16)[:, :, 1, :, :12:2]
    rotation = normal(2, 2, 3, 5)[:1].permute(0, 3, 2, 1)[:, :, None]
    for x, found in zip((query, key), rotate_by_kernel(query, key, rotation), strict=True):
        check(found, rotated(x, rotation), torch.float32)


@pytest.mark.parametrize("dimension", range(4))
def test_offsets_beyond_32_bits(dimension):
    """Four gigabytes of which the test touches a few pages."""
    shape, strides = [2, 2, 2, 2], [8, 4, 2, 1]
    shape[dimension], strides[dimension] = 4, 720_000_000
    query = torch.empty(3 * 720_000_000 + 16, dtype=torch.float16, device=DEVICE).as_strided(shape, strides)
    query.copy_(normal(*shape))
    *_, key, rotation = make_inputs(*shape, dtype=torch.float16)
    check(rotate_by_kernel(query, key, rotation)[0], rotated(query, rotation), torch.float16)


def test_a_rotation_of_another_width_is_an_error():
    query, key, _ = make_inputs(2, 5, 3, 6)
    with pytest.raises(RuntimeError, match="expand"):
        rotate_by_kernel(query, key, make_inputs(2, 5, 3, 4)[-1])


class Subclass(torch.Tensor):
    pass


def under_forward_mode(query, key, rotation):
    with forward_ad.dual_level():
        return rotate_by_kernel(forward_ad.make_dual(query, torch.ones_like(query)), key, rotation)


def under(transform):
    """Return a function that calls the kernel inside a function that is transformed."""

    def call(query, key, rotation):
        found = []

        def rotate(query):
            found.append(rotate_by_kernel(query, key, rotation))
            return query.sum()

        transform(rotate, query)
        return found[0]

    return call


LEFT_TO_THE_COMPLEX_FORM = {
    "float64": lambda q, k, r: rotate_by_kernel(q.double(), k.double(), r),
    "two dtypes": lambda q, k, r: rotate_by_kernel(q, k.half(), r),
    "two shapes": lambda q, k, r: rotate_by_kernel(q, k[:, :, :1], r),
    "subclass": lambda q, k, r: rotate_by_kernel(q, k.as_subclass(Subclass), r),
    "meta device": lambda q, k, r: rotate_by_kernel(q.to("meta"), k.to("meta"), r.to("meta")),
    "two devices": lambda q, k, r: rotate_by_kernel(q, k, r.to("meta")),
    "trained frequencies": lambda q, k, r: rotate_by_kernel(q, k, r.requires_grad_()),
    "compiler": under(lambda f, x: torch.compile(f, backend="eager")(x)),
    "trace": under(lambda f, x: torch.jit.trace(f, x, check_trace=False)),
    "make_fx": under(lambda f, x: make_fx(f)(x)),
    "grad": under(lambda f, x: torch.func.grad(f)(x)),
    "vmap": under(lambda f, x: torch.func.vmap(f)(x)),
    "jvp": under(lambda f, x: torch.func.jvp(f, (x,), (x,))),
    "forward mode": under_forward_mode,
}


@pytest.mark.parametrize("case", LEFT_TO_THE_COMPLEX_FORM)
def test_leaves_to_the_complex_form(case):
    inputs = make_inputs(2, 5, 3, 6)
    assert rotate_by_kernel(*inputs) is not None
    assert LEFT_TO_THE_COMPLEX_FORM[case](*inputs) is None


class Launches:
    """Stands in for the kernel: calls a function in place of each launch."""

    def __init__(self, launch):
        self.launch = launch

    def __getitem__(self, grid):
        return self.launch


def fail(*args, **kwargs):
    raise RuntimeError("Failed to find C compiler")


def test_a_kernel_that_cannot_be_launched_or_is_wrong_is_not_used(monkeypatch):
    inputs = make_inputs(2, 5, 3, 6)
    for launch in (fail, lambda query, key, rotation, query_out, key_out, *args, **kwargs: query_out.copy_(query)):
        works_on.cache_clear()
        monkeypatch.setattr(rotary_kernel, "rotate_token", Launches(launch))
        assert rotate_by_kernel(*inputs) is None


def test_without_triton(monkeypatch):
    inputs = make_inputs(2, 5, 3, 6)
    assert rotate_by_kernel(*inputs) is not None
    monkeypatch.setitem(sys.modules, "triton", None)  # importing it fails
    monkeypatch.delitem(sys.modules, rotary_kernel.__name__)
    without = runpy.run_module(rotary_kernel.__name__)
    without["rotate_by_kernel"].__globals__["DEVICE"] = DEVICE.type
    assert without["rotate_by_kernel"](*inputs) is None


def test_an_error_of_a_later_launch_is_raised(monkeypatch):
    inputs = make_inputs(2, 5, 3, 6)
    rotate_by_kernel(*inputs)
    monkeypatch.setattr(rotary_kernel, "rotate_token", Launches(fail))
    with pytest.raises(RuntimeError, match="C compiler"):
        rotate_by_kernel(*inputs)


class Counted:
    """The kernel, and the grids of its launches."""

    def __init__(self, kernel):
        self.kernel, self.grids = kernel, []

    def __getitem__(self, grid):
        self.grids.append(grid)
        return self.kernel[grid]


@pytest.fixture
def off_afterwards():
    yield
    use_rotary_kernel(False)


@pytest.mark.parametrize("unpad", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_model_has_the_same_gradients_with_the_kernel(dtype, unpad, monkeypatch, off_afterwards):
    """It is launched once per layer, and once more in the backward pass."""
    model = small_model("RoFormerForMaskedLM", unpad_inputs=unpad, num_hidden_layers=2).to(DEVICE, dtype).eval()
    ids = torch.arange(5, 29, device=DEVICE).view(2, 12)
    mask = (torch.arange(12, device=DEVICE) < torch.tensor([[12], [7]], device=DEVICE)).long()
    assert works_on(DEVICE, dtype)
    monkeypatch.setattr(rotary_kernel, "rotate_token", counted := Counted(rotary_kernel.rotate_token))
    gradients, launches = [], []
    for use in (False, True):
        use_rotary_kernel(use)
        loss = model(ids, attention_mask=mask, labels=ids).loss
        gradients.append(torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad]))
        launches.append(len(counted.grids))
    assert launches == [0, 4]
    for expected, found in zip(*gradients, strict=True):
        atol = 4 * torch.finfo(dtype).eps * expected.abs().max().item() + 1e-8
        torch.testing.assert_close(found, expected, rtol=0, atol=atol)


COMPILE = """
import json, sys, torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from modeling_roformer import rotary_kernel

class Driver:
    def get_current_device(self):
        return architecture
    def get_current_stream(self, device):
        return 0
    def get_current_target(self):
        return GPUTarget("cuda", architecture, 32)

class Compiler:
    def __getitem__(self, grid):
        return lambda *args, **kwargs: compiled.append(kernel.warmup(*args, grid=grid, **kwargs))

driver.set_active(Driver())
compiled, kernel = [], rotary_kernel.rotate_token
rotary_kernel.rotate_token = Compiler()
for architecture in (80, 90, 100):
    for b, s, h, d in ((2, 5, 12, 64), (1, 3, 3, 6), (1, 1, 1, 2)):
        for dtype in rotary_kernel.DTYPES:
            x = torch.zeros(b, s, h, d, dtype=dtype)
            rotary_kernel.Rotation.apply(x, x, torch.zeros(1, s, 1, d // 2, 2), 1.0)
print(json.dumps([[one.asm["ptx"], len(one.asm["cubin"])] for one in compiled]))
"""


def test_compiles_for_nvidia_gpus(tmp_path):
    """To machine code, from the arguments of a launch, which needs no GPU. Of the first shape, tensors are read and
    written 16 bytes at a time, and results are rounded once, to the nearest."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    words = [sys.executable, "-c", COMPILE]
    found = json.loads(subprocess.run(words, cwd=REPOSITORY, env=environment, stdout=-1, check=True).stdout)
    assert len(found) == 27 and all(size for _, size in found)
    for code in (code for first in (0, 9, 18) for code, _ in found[first : first + 2]):  # in half precision
        assert code.count("ld.global.v4.b32") == code.count("st.global.v4.b32") == 2
        assert len(re.findall(r"cvt\.rn\.b?f16x2\.f32", code)) == 8
