"""Models on a GPU, against the same weights on a CPU. `make test-gpu` runs these."""

import warnings
from contextlib import contextmanager

import pytest
import torch
from helpers.paths import REPOSITORY
from helpers.seq2seq_models import make_ids, padded
from helpers.seq2seq_models import make_model as make_seq2seq
from helpers.small_models import small_model
from helpers.training_steps import CASES, loss_and_gradients, make_step, number_of_reads
from torch.nn.attention import SDPBackend, sdpa_kernel

from modeling_roformer import RoFormerTokenizer, unpadding

pytestmark = pytest.mark.cuda
LENGTHS = torch.tensor([70, 33, 70, 12])
MASK = (torch.arange(70) < LENGTHS[:, None]).long()
IDS = torch.randint(5, 100, MASK.shape, generator=torch.Generator().manual_seed(3)) * MASK
BATCH = {"input_ids": IDS, "attention_mask": MASK}


def on_gpu(inputs):
    return {name: x.cuda() if isinstance(x, torch.Tensor) else x for name, x in inputs.items()}


@contextmanager
def counted_syncs():
    """Count how often the host waits, by torch's own count; `with counted_syncs() as syncs` appends to `syncs`."""
    syncs = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield syncs
        finally:
            torch.cuda.set_sync_debug_mode("default")
    syncs += [warning for warning in caught if "synchronizing CUDA operation" in str(warning.message)]


def assert_near(found, expected, share=0.03):
    """Compare norms: half precision rounds each number by up to 0.4 %."""
    assert (found.cpu().float() - expected.cpu().float()).norm() <= share * expected.float().norm() + 1e-3


def test_syncs_are_counted():
    x = torch.ones(3, device="cuda")
    with counted_syncs() as syncs:
        x.tolist(), x.sum().item(), x + 1
    assert len(syncs) == 2


@pytest.mark.parametrize("mask", ["with padding", "no mask"])
@pytest.mark.parametrize("case", CASES)
def test_a_training_step_is_that_of_a_cpu(case, mask):
    model, inputs = make_step(case, mask, dropout=0.0)
    outputs, gradients = loss_and_gradients(model, inputs)
    model.zero_grad()
    model, inputs = model.cuda(), on_gpu(inputs)
    with counted_syncs() as syncs:
        found, found_gradients = loss_and_gradients(model, inputs)
    assert len(syncs) <= number_of_reads(case, "cuda"), [str(sync) for sync in syncs]
    for name, x in outputs.items():
        if isinstance(x, torch.Tensor):
            assert found[name].is_cuda
            torch.testing.assert_close(found[name].cpu(), x, atol=1e-4, rtol=1e-3, msg=name)
    assert found_gradients.keys() == gradients.keys()
    for name, x in gradients.items():
        torch.testing.assert_close(found_gradients[name].cpu(), x, atol=1e-4, rtol=1e-3, msg=name)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("how", ["autocast", "weights"])
@pytest.mark.parametrize("fields", [{}, {"attention_type": "linear"}, {"is_decoder": True, "use_cache": False}])
def test_half_precision(fields, how, dtype):
    model = small_model("RoFormerForMaskedLM" if "is_decoder" not in fields else "RoFormerForCausalLM", **fields)
    labels = IDS.masked_fill(MASK == 0, -100)
    outputs, gradients = loss_and_gradients(model, BATCH, labels=labels)
    expected = {name: x.clone() for name, x in gradients.items()}
    model.zero_grad()
    model = model.cuda().to(dtype if how == "weights" else torch.float32)
    with torch.autocast("cuda", dtype, enabled=how == "autocast"):
        loss = model(**on_gpu(BATCH), labels=labels.cuda()).loss
    loss.backward()
    torch.testing.assert_close(loss.cpu().float(), outputs.loss, atol=0.03, rtol=0.03)
    name = next(name for name in expected if "word_embeddings" in name)
    assert_near(dict(model.named_parameters())[name].grad, expected[name], share=0.1)


@pytest.mark.parametrize("backend", ["FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH"])
@torch.no_grad()
def test_every_kernel_of_sdpa(backend):
    """Without padding, since only some of them take a mask. Heads are 64 wide."""
    model = small_model(hidden_size=128, initializer_range=0.1)
    expected = model(IDS.clamp(min=5)).last_hidden_state
    with sdpa_kernel(getattr(SDPBackend, backend)):
        found = model.cuda().bfloat16()(IDS.clamp(min=5).cuda()).last_hidden_state
    assert_near(found, expected)


@torch.no_grad()
@pytest.mark.parametrize("padding", [True, False])
def test_flex_attention(padding):
    model = small_model(hidden_size=64, initializer_range=0.1).cuda()
    batch = on_gpu(BATCH) if padding else {"input_ids": IDS.clamp(min=5).cuda()}
    expected = model(**batch).last_hidden_state
    model.set_attn_implementation("flex_attention")
    # Its products are in tensor cores' float32, of ten bits.
    torch.testing.assert_close(model(**batch).last_hidden_state, expected, atol=5e-3, rtol=0)


PACKED = {
    "plain": ("RoFormerForMaskedLM", {}),
    "linear": ("RoFormerForMaskedLM", {"attention_type": "linear"}),
    "rotary values": ("RoFormerForMaskedLM", {"rotary_value": True}),
    "decoder": ("RoFormerForCausalLM", {"is_decoder": True, "use_cache": False}),
}


@pytest.mark.parametrize("variant", PACKED)
def test_packed_texts_are_those_with_padding(variant, monkeypatch):
    head, fields = PACKED[variant]
    model, batch = small_model(head, **fields).cuda(), on_gpu(BATCH)
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    results, syncs = {}, {}
    for choice in (False, None, True):
        if choice:  # as with a kernel for packed texts
            monkeypatch.setattr("modeling_roformer.call.is_faster_packed", lambda *args: True)
        model.zero_grad()
        with counted_syncs() as counted:
            outputs, gradients = loss_and_gradients(model, batch, labels=labels, unpad_inputs=choice)
        results[choice] = outputs.logits[MASK.bool()].detach(), {name: x.clone() for name, x in gradients.items()}
        syncs[choice] = len(counted)
    assert syncs[None] == syncs[False] and syncs[True] == syncs[False] + 1
    torch.testing.assert_close(results[True][0], results[False][0], atol=1e-4, rtol=1e-4)
    for name, x in results[False][1].items():
        torch.testing.assert_close(results[True][1][name], x, atol=1e-4, rtol=1e-3, msg=name)


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "attention_factor": 1.5}
BY_KERNEL = {name: PACKED[name] for name in ("plain", "rotary values", "decoder")}
BY_KERNEL["yarn"] = ("RoFormerForMaskedLM", {"rope_parameters": YARN})


@pytest.fixture
def kernel_calls(monkeypatch):
    """Return a list of the numbers of tokens that torch's kernel for packed texts computes in each call."""
    calls, attend = [], unpadding.attend_packed

    def counted(query, *args):
        calls.append(len(query))
        return attend(query, *args)

    monkeypatch.setattr(unpadding, "attend_packed", counted)
    return calls


def in_a_row(batch):
    """Return the texts of a padded batch without padding, with positions that separate them."""
    is_token = batch["attention_mask"].bool()
    positions = torch.arange(is_token.shape[1], device=is_token.device).expand(is_token.shape)
    rows = {**batch, "attention_mask": None, "position_ids": positions}
    return {name: x[is_token][None] for name, x in rows.items() if x is not None}


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("how", ["autocast", "weights"])
@pytest.mark.parametrize("way", ["padded", "in a row"])
@pytest.mark.parametrize("variant", BY_KERNEL)
def test_packed_texts_are_computed_by_torchs_kernel(variant, way, how, checkpointing, kernel_calls):
    """By default: outputs and gradients are those of padded texts in float32."""
    head, fields = BY_KERNEL[variant]
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model, batch = small_model(head, initializer_range=0.1, **dropout, **fields).cuda().train(), on_gpu(BATCH)
    batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    batch["labels"][:, 0] = -100  # the collator ignores a text's first label
    outputs, gradients = loss_and_gradients(model, batch)
    expected = {name: x.clone() for name, x in gradients.items()}
    assert not kernel_calls
    model.zero_grad()
    if checkpointing:
        model.gradient_checkpointing_enable()
    model = model.to(torch.bfloat16 if how == "weights" else torch.float32)
    with torch.autocast("cuda", torch.bfloat16, enabled=how == "autocast"):
        found = model(**(batch if way == "padded" else in_a_row(batch)))
    found.loss.backward()
    assert kernel_calls == [int(MASK.sum())] * (4 if checkpointing else 2)
    logits = found.logits[MASK.bool()] if way == "padded" else found.logits[0]
    assert_near(logits.detach(), outputs.logits[MASK.bool()].detach())
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    for name, x in expected.items():
        if "key.bias" not in name and "Norm" not in name:  # sums that cancel, or that torch rounds
            assert_near(gradients[name], x, share=0.1)


@torch.no_grad()
@pytest.mark.parametrize("way", ["padded", "in a row"])
def test_a_later_token_does_not_change_earlier_logits_of_a_packed_decoder(way, kernel_calls):
    model = small_model("RoFormerForCausalLM", is_decoder=True, use_cache=False).cuda().bfloat16()
    batch = on_gpu(BATCH)
    other = batch | {"input_ids": batch["input_ids"].clone()}
    other["input_ids"][1, 20] += 1
    one, other = (model(**(x if way == "padded" else in_a_row(x))).logits for x in (batch, other))
    if way == "in a row":
        one, other = (x[0].split(LENGTHS.tolist())[1] for x in (one, other))
    else:
        one, other = one[1], other[1]
    assert torch.equal(one[:20], other[:20]) and not torch.equal(one[20:33], other[20:33])
    assert len(kernel_calls) == 4


@torch.no_grad()
@pytest.mark.parametrize(("width", "number"), [(24, 0), (32, 2), (512, 2), (528, 0)])
def test_heads_that_the_kernel_cannot_take_have_sdpa(width, number, kernel_calls):
    """Two heads of 12, 16, 256 and 264."""
    model, batch = small_model(hidden_size=width, initializer_range=0.1).cuda(), on_gpu(BATCH)
    expected = model(**batch).last_hidden_state[MASK.bool()]
    assert_near(model.bfloat16()(**batch).last_hidden_state[MASK.bool()], expected)
    assert len(kernel_calls) == number


@pytest.mark.parametrize("width", [64, 128, 192])
@pytest.mark.parametrize("is_causal", [False, True])
def test_packed_texts_of_ordinary_sizes(is_causal, width, kernel_calls):
    """130 to 1,000 tokens: outputs and gradients of the kernel are those of SDPA in float32."""
    fields = {"hidden_size": 2 * width, "is_decoder": is_causal, "use_cache": False, "initializer_range": 0.1}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = small_model(**fields, **dropout).cuda().train()
    mask = (torch.arange(1000) < torch.tensor([1000, 130, 517, 256])[:, None]).long().cuda()
    ids = torch.randint(5, 100, mask.shape, generator=torch.Generator().manual_seed(3)).cuda() * mask
    weights = torch.randn(int(mask.sum()), 2 * width, generator=torch.Generator().manual_seed(4)).cuda()
    results = []
    for dtype in (torch.float32, torch.bfloat16):
        model.zero_grad()
        with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
            outputs = model(ids, mask).last_hidden_state[mask.bool()]
        (outputs.float() * weights).sum().backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        results.append((outputs.detach(), gradients))
    assert kernel_calls == [int(mask.sum())] * 2
    assert_near(results[1][0], results[0][0].cpu())
    for name, x in results[0][1].items():
        if "key.bias" not in name and "Norm" not in name:  # sums that cancel, or that torch rounds
            assert_near(results[1][1][name], x.cpu(), share=0.1)


def test_a_thousand_numbers_of_tokens_take_no_more_memory_than_one(kernel_calls):
    """From torch 2.14 on, cuDNN would keep a plan for each of them; it is called where there is no window."""
    model = small_model(hidden_size=128, initializer_range=0.1).cuda().bfloat16()

    def run(tokens):
        """Train on two texts in a row."""
        places = torch.arange(tokens, device="cuda")[None]
        positions = torch.where(places < tokens // 3, places, places - tokens // 3)
        model(torch.full_like(places, 5), position_ids=positions).last_hidden_state.float().sum().backward()

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run(1200)
    kernels = {event.key.lower() for event in profile.key_averages()}
    assert any("flash" in name for name in kernels) and not any("cudnn" in name for name in kernels)
    free = torch.cuda.mem_get_info()[0]
    for tokens in range(200, 1200):
        run(tokens)
    torch.cuda.synchronize()
    assert len(kernel_calls) == 2 * 1001
    assert free - torch.cuda.mem_get_info()[0] < 2**28


def test_attention_that_is_dropped_out_has_sdpa(kernel_calls):
    model, batch = small_model(attention_probs_dropout_prob=0.5, hidden_dropout_prob=0.0), on_gpu(BATCH)
    model = model.cuda().bfloat16().train()
    one, other = model(**batch).last_hidden_state, model(**batch).last_hidden_state
    assert not torch.equal(one, other) and not kernel_calls


LINEAR = {
    "elu": {},
    "softmax, causal": {"linear_feature_map": "softmax", "is_decoder": True, "use_cache": False},
    "cosine": {"linear_feature_map": "cosine"},
    "Performer, causal": {"linear_feature_map": "favor", "is_decoder": True, "use_cache": False},
}


@pytest.mark.parametrize("variant", LINEAR)
def test_linear_attention_compiles(variant):
    torch.compiler.reset()
    model = small_model(attention_type="linear", **LINEAR[variant]).cuda()
    compiled = torch.compile(model, fullgraph=True)
    results = []
    for called in (model, compiled):
        model.zero_grad()
        outputs, gradients = loss_and_gradients(called, on_gpu(BATCH))
        names = {name.removeprefix("_orig_mod."): x.clone() for name, x in gradients.items()}
        results.append((outputs.last_hidden_state[MASK.bool()].detach(), names))
    torch.testing.assert_close(results[1][0], results[0][0], atol=1e-3, rtol=1e-3)
    for name, x in results[0][1].items():
        assert_near(results[1][1][name], x)


def test_linear_attention_of_a_long_text():
    """65,536 tokens in a memory that grows with the length: 2 layers of 256 in bfloat16 take less than 4 GiB."""
    model = small_model(attention_type="linear", hidden_size=256, num_attention_heads=4).cuda().bfloat16()
    ids = torch.randint(5, 100, (1, 65_536), device="cuda")
    torch.cuda.reset_peak_memory_stats()
    model(ids).last_hidden_state.float().square().mean().backward()
    assert torch.cuda.max_memory_allocated() < 4 * 2**30
    assert model.embeddings.word_embeddings.weight.grad.isfinite().all()


@torch.no_grad()
@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_compiled_models_never_wait(mode):
    torch.compiler.reset()
    model, batch = small_model().cuda(), on_gpu(BATCH)
    expected = model(**batch).last_hidden_state
    compiled = torch.compile(model, fullgraph=True, mode=mode)
    for _ in range(3):  # the third call replays a graph
        compiled(**batch)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = compiled(**batch).last_hidden_state.clone()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("fields", [{}, {"attention_type": "linear"}, {"position_encoding": "sinusoidal"}])
def test_a_forward_pass_is_captured_as_a_graph(fields):
    """While a graph is captured, nothing may be read."""
    model, batch = small_model(**fields).cuda(), on_gpu(BATCH)
    other = batch["input_ids"].flip(0).clamp(min=5)
    expected = model(other, batch["attention_mask"]).last_hidden_state
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        model(**batch)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = model(**batch).last_hidden_state
    batch["input_ids"].copy_(other)
    graph.replay()
    torch.testing.assert_close(outputs, expected, atol=1e-4, rtol=1e-3)


GENERATION = [
    ({}, {}),
    ({}, {"num_beams": 3}),
    ({}, {"cache_implementation": "static"}),  # compiles a step, as a graph
    ({"prefix_lm": True}, {}),
    ({"attention_type": "linear"}, {}),
    ({"attention_type": "linear", "linear_feature_map": "favor"}, {"num_beams": 3}),
]


@pytest.mark.parametrize(("fields", "options"), GENERATION)
def test_generation_is_that_of_a_cpu(fields, options):
    torch.compiler.reset()
    model = small_model("RoFormerForCausalLM", is_decoder=True, pad_token_id=0, eos_token_id=None, **fields)
    model.generation_config.eos_token_id = None
    mask = MASK[:2].flip(1)
    inputs = {"input_ids": IDS[:2].flip(1), "attention_mask": mask}
    expected = model.generate(**inputs, max_new_tokens=8, do_sample=False, num_beams=options.get("num_beams", 1))
    found = model.cuda().generate(**on_gpu(inputs), max_new_tokens=8, do_sample=False, **options)
    assert found.is_cuda
    assert found.tolist() == expected.tolist()


def test_a_translation_is_that_of_a_cpu():
    model, inputs = make_seq2seq(), padded([make_ids(9), make_ids(5)])
    expected = model.generate(**inputs, max_new_tokens=8, num_beams=4)
    assert model.cuda().generate(**on_gpu(inputs), max_new_tokens=8, num_beams=4).tolist() == expected.tolist()


def test_vectors_of_triplets_are_those_of_a_cpu():
    tokenizer = RoFormerTokenizer(REPOSITORY / "examples" / "roformer-mini-zh" / "vocab.txt")
    model = small_model("RoFormerForTripletMatching", vocab_size=len(tokenizer), triplet_scorer="bi")
    texts = ["房屋租赁合同到期。", "借款", "两车相撞，被告负主要责任。"]
    expected = model.encode(texts, tokenizer, batch_size=2)
    found = model.cuda().encode(texts, tokenizer, batch_size=2)
    assert not found.is_cuda
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    cosines, order = model.rank(found[0].cuda(), found.cuda())
    assert cosines.is_cuda and order[0] == 0


@torch.no_grad()
@pytest.mark.parametrize("places", ["cuda", "auto", "parts"])
def test_device_map(places, tmp_path):
    model = small_model("RoFormerForMaskedLM")
    model.save_pretrained(tmp_path)
    if places == "parts":  # accelerate moves inputs between them
        places = {"roformer.embeddings": 0, "roformer.encoder.layer.0": "cpu", "roformer.encoder.layer.1": 0, "cls": 0}
    found = type(model).from_pretrained(tmp_path, device_map=places)
    assert found.roformer.embeddings.word_embeddings.weight.is_cuda
    torch.testing.assert_close(found(**on_gpu(BATCH)).logits.cpu(), model(**BATCH).logits, atol=1e-3, rtol=1e-3)
