"""Several texts in a row, without padding: each has the outputs of it alone; which arguments separate them."""

import itertools

import pytest
import torch
from cases import DECODER, EAGER, LINEAR, NEZHA, VARIANTS, close, make_variant
from helpers.flattened import ENDS, LENGTHS, TEXTS, flatten, use_varlen_attention
from helpers.messages import refused
from helpers.seq2seq_models import SIZES
from helpers.small_models import small_model
from helpers.waits import host_reads
from transformers import DynamicCache

import modeling_roformer as ours

PACKED = [name for name in VARIANTS if "cross" not in name]  # a row has one source
POOLED = ["pooler", "RoFormer-Sim", "NEZHA"]
WAYS = {
    "positions": ("position_ids",),
    "ends": ENDS,
    "ends, less": ("cu_seq_lens_q",),
    "seq_idx": ("seq_idx",),
    "all": ("position_ids", *ENDS, "seq_idx"),
}


def alone(model, texts=TEXTS, output="last_hidden_state", **inputs):
    """Return the outputs of each text in a call of its own, joined."""
    return torch.cat([model(text[None], **inputs)[output][0] for text in texts])


@torch.no_grad()
@pytest.mark.parametrize("variant", PACKED)
def test_each_text_has_the_outputs_that_it_has_alone(variant):
    model = make_variant(variant)
    expected = alone(model)
    for names in WAYS.values():
        outputs = model(**flatten(names=names))
        close(outputs.last_hidden_state[0], expected)
        assert outputs.get("past_key_values") is None
    if variant in POOLED:
        close(model(**flatten()).pooler_output, torch.cat([model(text[None]).pooler_output for text in TEXTS]))


@torch.no_grad()
@pytest.mark.parametrize("variant", [name for name in PACKED if name not in NEZHA])
def test_several_rows_have_texts_of_their_own(variant):
    model = make_variant(variant)
    rows = [[TEXTS[1], TEXTS[0]], [TEXTS[4], TEXTS[2], TEXTS[4], TEXTS[2]]]
    for name in ("position_ids", "seq_idx"):
        batches = [flatten(row, names=(name,)) for row in rows]
        batch = {key: torch.cat([batch[key] for batch in batches]) for key in batches[0]}
        for more in ({}, {} if "linear" in variant else {"output_hidden_states": True}):
            found = model(**batch, **more).last_hidden_state
            for states, row in zip(found, rows, strict=True):
                close(states, alone(model, row))


@torch.no_grad()
@pytest.mark.parametrize("variant", PACKED)
def test_hidden_states_are_in_the_order_of_the_tokens(variant):
    model, batch = make_variant(variant), flatten()
    found = model(**batch, output_hidden_states=True).hidden_states
    texts = [model(text[None], output_hidden_states=True).hidden_states for text in TEXTS]
    for layer, states in enumerate(found):
        close(states[0], torch.cat([text[layer][0] for text in texts]))


@torch.no_grad()
@pytest.mark.parametrize("variant", [name for name in PACKED if "linear" not in name])
def test_attentions_are_zero_between_texts(variant):
    model = make_variant(variant)
    found = model(**flatten(), output_attentions=True)
    close(found.last_hidden_state[0], alone(model))
    for layer, weights in enumerate(found.attentions):
        texts = [model(text[None], output_attentions=True).attentions[layer][0] for text in TEXTS]
        for head in range(2):
            close(weights[0, head], torch.block_diag(*(text[head] for text in texts)))


@torch.no_grad()
def test_rows_may_share_their_positions():
    model, ids = small_model().double(), torch.stack([TEXTS[1], TEXTS[3]])
    positions = torch.tensor([[0, 1, 2, 0, 1, 0, 1]])
    found = model(ids, position_ids=positions).last_hidden_state
    for states, row in zip(found, ids, strict=True):
        close(states, alone(model, row.split([3, 2, 2])))


@torch.no_grad()
@pytest.mark.parametrize("variant", ["plain", "UniLM"])
def test_embeddings_and_segments_may_come_with_it(variant):
    """The prefix of a UniLM stays within its text."""
    model, batch = make_variant(variant), flatten()
    segments = torch.cat([(torch.arange(n) > n // 2).long() for n in LENGTHS])
    embeddings = model.embeddings.word_embeddings(batch.pop("input_ids"))
    found = model(inputs_embeds=embeddings, token_type_ids=segments[None], **batch).last_hidden_state[0]
    pairs = zip(TEXTS, segments.split(LENGTHS), strict=True)
    close(found, torch.cat([model(text[None], token_type_ids=x[None]).last_hidden_state[0] for text, x in pairs]))


# Flash attention, which needs a GPU, by a stand-in.


@torch.no_grad()
@pytest.mark.parametrize("is_decoder", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_flash_attention_gets_all_texts_in_one_call(way, is_decoder, monkeypatch):
    name, calls = use_varlen_attention(monkeypatch)
    model = small_model(is_decoder=is_decoder).to(torch.bfloat16)
    expected = model(**flatten()).last_hidden_state
    model.config._attn_implementation = name
    found = model(**flatten(names=WAYS[way])).last_hidden_state
    assert len(calls) == 2
    # Two roundings of bfloat16; mixed texts differ by 1.
    assert (found - expected).float().pow(2).mean().sqrt() < 0.05


def test_flash_attention_reads_no_lengths_that_are_given(monkeypatch):
    model = small_model().bfloat16()
    model.config._attn_implementation, _ = use_varlen_attention(monkeypatch)
    own = 2 * 2  # of the stand-in, per layer
    assert count_reads(model, **flatten()) == 2 + own
    assert count_reads(model, **flatten(names=ENDS)) == 1 + own


# Which positions separate texts.


@torch.no_grad()
@pytest.mark.parametrize("positions", [
    [0, 1, 2, 3, 4, 5], [5, 6, 7, 8, 9, 10], [0, 1, 2, 90, 91, 92], [0, 1, 2, 1, 2, 3], [7, 3, 9, 1, 1, 1],
    [3, 2, 1, 2, 3, 4],
])  # fmt: skip
@pytest.mark.parametrize("fields", [{}, DECODER], ids=["encoder", "decoder"])
def test_other_positions_separate_nothing(positions, fields):
    model, ids = small_model(**fields).double(), torch.arange(5, 11)[None]
    positions = torch.tensor([positions])
    found = model(ids, position_ids=positions)
    close(found.last_hidden_state, model(ids, torch.ones_like(ids), position_ids=positions).last_hidden_state)
    assert (found.past_key_values is not None) == bool(fields)


@torch.no_grad()
def test_a_mask_says_that_rows_are_texts():
    model, batch = small_model(**DECODER).double(), flatten()
    text = model(**batch, attention_mask=torch.ones_like(batch["input_ids"])).last_hidden_state[0]
    assert (text[3:] - alone(model)[3:]).abs().max() > 0.1
    padded = torch.tensor([[0, 0, 7, 8, 9]])
    mask, positions = torch.tensor([[0, 0, 1, 1, 1]]), torch.tensor([[0, 0, 0, 1, 2]])
    found = model(padded, attention_mask=mask, position_ids=positions).last_hidden_state[0, 2:]
    close(found, model(padded[:, 2:]).last_hidden_state[0])


@torch.no_grad()
def test_positions_after_cached_tokens_separate_nothing():
    model = small_model(**DECODER).double()
    ids, positions = torch.tensor([[5, 6, 7, 8, 9]]), torch.tensor([[0, 1, 2, 0, 1]])
    expected = model(ids, torch.ones_like(ids), position_ids=positions).last_hidden_state[:, 3:]
    cache = model(ids[:, :3]).past_key_values
    close(model(ids[:, 3:], position_ids=positions[:, 3:], past_key_values=cache).last_hidden_state, expected)


@torch.no_grad()
@pytest.mark.parametrize("fields", [{}, EAGER, LINEAR, {"prefix_lm": True}])
@pytest.mark.parametrize("use_cache", [False, True])
def test_generate_continues_one_text_per_row(fields, use_cache):
    model = small_model("RoFormerForCausalLM", **DECODER, **fields).double()
    ids, positions = torch.arange(5, 11)[None], torch.tensor([[0, 1, 2, 0, 1, 2]])
    options = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None, "pad_token_id": 0, "use_cache": use_cache}
    found = model.generate(ids, position_ids=positions, **options)
    for n in range(6, 10):
        more = torch.cat([positions, torch.arange(3, n - 3)[None]], dim=1)
        segments = (torch.arange(n) > 5).long()[None] if "prefix_lm" in fields else None
        logits = model(found[:, :n], torch.ones(1, n), segments, position_ids=more, use_cache=False).logits
        assert found[0, n] == logits[0, -1].argmax()
    mask = torch.ones_like(ids)
    assert model.generate(ids, attention_mask=mask, position_ids=positions, **options).equal(found)


# What is refused.


def ends(*numbers):
    return torch.tensor(numbers, dtype=torch.int32)


ROW = flatten(names=())["input_ids"]  # of 22 tokens


@pytest.mark.parametrize(("marks", "facts"), [
    *(({"cu_seq_lens_q": ends(*x)}, [22]) for x in ([1, 3, 22], [0, 3, 21], [0, 3, 23], [0, 9, 5, 22], [0, 9, 9, 22])),
    ({"cu_seq_lens_q": ends(0, 3, 22), "cu_seq_lens_k": ends(0, 4, 22)}, [22]),
    ({"cu_seq_lens_q": ends(0, 3, 22), "max_length_q": 18}, [22]),
    ({"cu_seq_lens_q": ends(0, 22, 44), "input_ids": ROW.repeat(2, 1)}, [2]),  # for one row only
    ({"cu_seq_lens_q": ends(0, 3, 22), "attention_mask": torch.ones_like(ROW)}, ["attention_mask"]),
    ({"seq_idx": torch.zeros_like(ROW), "attention_mask": torch.ones_like(ROW)}, ["attention_mask"]),
    ({"seq_idx": torch.zeros(1, 21, dtype=torch.int32)}, [(1, 21), (1, 22)]),
    ({"seq_idx": ROW.repeat(2, 1)}, [(2, 22), (1, 22)]),
    ({"seq_idx": torch.zeros_like(ROW), "input_ids": ROW.repeat(2, 1)}, [(1, 22), (2, 22)]),
])  # fmt: skip
def test_marks_that_do_not_fit_are_refused(marks, facts):
    with refused(ValueError, next(iter(marks)), *facts):
        small_model()(**{"input_ids": ROW, **marks})


@pytest.mark.parametrize("way", ["ends", "seq_idx"])
def test_texts_longer_than_a_table_of_positions_are_refused(way):
    model = small_model(position_encoding="learned", max_position_embeddings=6)  # one text has 7
    with refused(ValueError, "position_ids", "6", "from 0 to 5"):
        model(**flatten(names=WAYS[way]))


def test_a_given_cache_is_refused():
    model = small_model("RoFormerForCausalLM", **DECODER)
    with refused(ValueError, "position_ids", "past_key_values"):
        model(**flatten(), past_key_values=DynamicCache(config=model.config))
    cache = model(TEXTS[0][None]).past_key_values
    with refused(ValueError, "cu_seq_lens_q", "past_key_values"):
        model(**flatten(names=ENDS), past_key_values=cache)


POOLING = [
    ("RoFormerForSequenceClassification", {}, None),
    ("RoFormerForQuestionAnswering", {}, None),
    ("RoFormerForMultipleChoice", {}, 1),
    ("RoFormerForTripletMatching", {"triplet_scorer": "bi"}, 3),
    ("NezhaForSequenceClassification", {}, None),
    ("NezhaForPreTraining", {}, None),
    ("NezhaForNextSentencePrediction", {}, None),
]


@pytest.mark.parametrize(("head", "fields", "sequences"), POOLING)
def test_heads_with_one_result_per_row_refuse_several_texts(head, fields, sequences):
    model = small_model(head, **fields)
    for names in (("position_ids",), *(() if sequences else (ENDS, ("seq_idx",)))):
        batch = flatten(names=names)
        if sequences:
            batch = {name: torch.stack([x] * sequences, dim=1) for name, x in batch.items()}
        with refused(ValueError, names[0]):
            model(**batch)
        model(**{**batch, **dict.fromkeys(names)})  # one text per row


@pytest.mark.parametrize("side", ["position_ids", "decoder_position_ids", "cu_seq_lens_q"])
def test_sequence_to_sequence_refuses_several_texts(side):
    torch.manual_seed(0)
    model = ours.RoFormerForConditionalGeneration(ours.RoFormerSeq2SeqConfig(**{**SIZES, "vocab_size": 100}))
    batch = flatten(names=("position_ids", *ENDS))
    ids = batch["input_ids"]
    marks = batch["position_ids" if "position" in side else side]
    with refused(ValueError, "position_ids" if "position" in side else side):
        model(ids, decoder_input_ids=ids, **{side: marks})


def test_cross_attention_refuses_several_texts():
    model = small_model(**DECODER, add_cross_attention=True)
    close(model.double()(**flatten()).last_hidden_state[0], alone(model))
    with refused(ValueError, "position_ids"):
        model(**flatten(), encoder_hidden_states=torch.zeros(1, 3, 32, dtype=torch.float64))


def test_linear_attention_has_no_mask_of_pairs():
    with refused(ValueError, 'attention_type="linear"', "attention_mask"):
        small_model(**LINEAR)(**flatten(), output_attentions=True)


# Compilers and transforms, where values cannot be read.


@torch.no_grad()
def count_reads(model, **inputs):
    return host_reads(lambda: model(**inputs)).total()


@pytest.mark.parametrize("fields", [{}, DECODER, {**LINEAR, **DECODER}], ids=["encoder", "decoder", "linear"])
def test_one_text_costs_no_read_and_several_cost_one(fields):
    model, ids = small_model(**fields), flatten(names=())["input_ids"]
    assert count_reads(model, input_ids=ids) == 1
    assert count_reads(model, input_ids=ids, position_ids=torch.arange(22)[None]) == 1
    assert all(count_reads(model, **flatten(names=names)) == 2 for names in WAYS.values())


# Masks separate texts there, which linear attention has not; NEZHA's distances need no mask of their own.
TRACED = [name for name in PACKED if "linear" not in name]


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("variant", TRACED)
def test_compiled_and_exported_models(variant):
    model = make_variant(variant, use_cache=False)
    expected = alone(model)
    for names in (WAYS["positions"], WAYS["all"]):
        batch = flatten(names=names)
        torch.compiler.reset()
        found = torch.compile(model, fullgraph=True, backend="aot_eager")(**batch).last_hidden_state
        close(found[0], expected)
        exported = torch.export.export(model, (), batch, strict=False).module()
        close(exported(**batch).last_hidden_state[0], expected)


@torch.no_grad()
@pytest.mark.parametrize("variant", TRACED)
def test_vmap(variant):
    model = make_variant(variant, use_cache=False)
    ids, positions = torch.stack([TEXTS[1], TEXTS[3]]), torch.tensor([[0, 1, 2, 0, 1, 0, 1], [0, 1, 2, 3, 4, 5, 6]])

    def one(ids, positions):
        return model(ids[None], position_ids=positions[None]).last_hidden_state[0]

    found = torch.func.vmap(one)(ids, positions)
    close(found[0], alone(model, ids[0].split([3, 2, 2])))
    close(found[1], alone(model, [ids[1]]))


@torch.no_grad()
def test_a_head_with_one_result_per_row_takes_positions_that_cannot_be_read():
    model, ids = small_model("RoFormerForSequenceClassification").double(), torch.stack([TEXTS[1], TEXTS[3]])
    positions = torch.arange(7).expand(2, 7)
    found = torch.func.vmap(lambda ids, x: model(ids[None], position_ids=x[None]).logits[0])(ids, positions)
    close(found, model(ids).logits)


def test_linear_attention_cannot_tell_in_a_traced_model():
    model, batch = small_model(**LINEAR), flatten()
    with refused(ValueError, 'attention_type="linear"', "attention_mask"):
        torch.func.vmap(lambda ids, x: model(ids[None], position_ids=x[None])[0])(*batch.values())
    mask = torch.ones_like(batch["input_ids"])
    torch.func.vmap(lambda ids, x, mask: model(ids[None], mask[None], position_ids=x[None])[0])(*batch.values(), mask)


@torch.no_grad()
def test_layers_compiled_one_by_one_are_compiled_once():
    torch._dynamo.reset()
    model, graphs = small_model().double(), []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    for layer in model.encoder.layer:
        layer.compile(fullgraph=True, backend=backend, dynamic=False)
    for order in itertools.islice(itertools.permutations(TEXTS), 10):
        found = model(**flatten(order)).last_hidden_state[0]
    assert 0 < len(graphs) <= 2
    torch._dynamo.reset()
    close(found, alone(small_model().double(), order))
