"""Models on a GPU, against the same weights on a CPU. `make test-gpu` runs these."""

import warnings
from contextlib import contextmanager

import pytest
import torch
from helpers import torch_flash
from helpers.paths import REPOSITORY
from helpers.seq2seq_models import make_ids, padded
from helpers.seq2seq_models import make_model as make_seq2seq
from helpers.small_models import small_model
from helpers.training_steps import CASES, make_step, number_of_reads
from torch.nn.attention import SDPBackend, sdpa_kernel

from modeling_roformer import RoFormerTokenizer

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


def loss_and_gradients(model, inputs, **options):
    outputs = model(**inputs, **options)
    (outputs[0] if outputs[0].ndim == 0 else outputs[0][..., ::3].sum()).backward()
    return outputs, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


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
            monkeypatch.setattr("modeling_roformer.model.is_faster_packed", lambda *args: True)
        model.zero_grad()
        with counted_syncs() as counted:
            outputs, gradients = loss_and_gradients(model, batch, labels=labels, unpad_inputs=choice)
        results[choice] = outputs.logits[MASK.bool()].detach(), {name: x.clone() for name, x in gradients.items()}
        syncs[choice] = len(counted)
    assert syncs[None] == syncs[False] and syncs[True] == syncs[False] + 1
    torch.testing.assert_close(results[True][0], results[False][0], atol=1e-4, rtol=1e-4)
    for name, x in results[False][1].items():
        torch.testing.assert_close(results[True][1][name], x, atol=1e-4, rtol=1e-3, msg=name)


@pytest.mark.parametrize("variant", ["plain", "rotary values", "decoder"])
def test_flash_attention_takes_packed_texts_in_one_call(variant):
    """By default in encoders, since the kernel is sure to gain. Outputs and gradients are those of float32."""
    head, fields = PACKED[variant]
    choice = True if variant == "decoder" else None
    model, batch = small_model(head, initializer_range=0.1, **fields).cuda(), on_gpu(BATCH)
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    outputs, gradients = loss_and_gradients(model, batch, labels=labels, unpad_inputs=False)
    expected = {name: x.clone() for name, x in gradients.items()}
    model.zero_grad()
    model = model.bfloat16()
    model.set_attn_implementation(torch_flash.register())
    seen = []
    layer = model.roformer.encoder.layer[0]
    hook = layer.intermediate.register_forward_pre_hook(lambda module, args: seen.append(args[0].shape[:2].numel()))
    found, gradients = loss_and_gradients(model, batch, labels=labels, unpad_inputs=choice)
    hook.remove()
    assert seen == [int(MASK.sum())]
    assert_near(found.logits[MASK.bool()], outputs.logits[MASK.bool()])
    for name, x in expected.items():
        if "key.bias" not in name and "Norm" not in name:  # sums that cancel, or that torch rounds
            assert_near(gradients[name], x, share=0.1)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_flash_attention_of_texts_of_one_length(dropout):
    model = small_model(hidden_size=128, attention_probs_dropout_prob=dropout, hidden_dropout_prob=0.0).cuda()
    ids = IDS.clamp(min=5).cuda()
    expected = model(ids).last_hidden_state
    model = model.bfloat16()
    model.set_attn_implementation(torch_flash.register())
    assert_near(model(ids).last_hidden_state, expected)
    model.train()
    one, other = model(ids).last_hidden_state, model(ids).last_hidden_state
    assert torch.equal(one, other) == (dropout == 0)


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
