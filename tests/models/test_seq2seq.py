"""RoFormer for sequence to sequence: Marian where positions are the same, and with rotation put into Marian."""

import inspect
import json
import re

import pytest
import torch
from cases import close
from helpers.messages import refused
from helpers.seq2seq_models import PAD, SIZES, START, make_ids, make_model, make_tokenizer, marian_and_ours, padded
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSeq2SeqLM,
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    pipeline,
)

from modeling_roformer import RoFormerForConditionalGeneration, RoFormerSeq2SeqConfig, RoFormerSeq2SeqModel
from modeling_roformer.conversion import info
from modeling_roformer.hub.remote_code import files_with_code
from modeling_roformer.model_cards.folder_card import write_card

ENCODINGS = ["rotary", "sinusoidal"]
TEXTS = [make_ids(length, seed=length) for length in (11, 4, 7)]
TARGET = make_ids(3, 9, seed=1)


@pytest.fixture(autouse=True)
def float64():
    """Compute in float64: with weights as large as these, float32 differs by 1e-4 from processor to processor."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("activation", ["swish", "relu", "gelu"])
@pytest.mark.parametrize("scale", [True, False])
@torch.no_grad()
def test_with_sinusoidal_positions_it_is_marian(activation, scale):
    marian, ours = marian_and_ours(activation_function=activation, scale_embedding=scale)
    inputs = {**padded(TEXTS), "decoder_input_ids": TARGET, "output_hidden_states": True, "output_attentions": True}
    # Eager in both, since only so does Marian give the attention matrices.
    marian.set_attn_implementation("eager")
    found, expected = ours(**inputs, unpad_inputs=False), marian(**inputs)
    assert expected.logits.std() > 1
    close(found.logits, expected.logits)
    for name in ("encoder_hidden_states", "decoder_hidden_states", "decoder_attentions", "cross_attentions"):
        assert len(found[name]) == len(expected[name])
        for x, y in zip(found[name], expected[name], strict=True):
            close(x, y)


@pytest.mark.parametrize("pad_token_id", [0, None])
def test_scaled_word_vectors_begin_with_variance_1(pad_token_id):
    """Word vectors have a variance that sinusoids, of variance 1/2, do not hide, as in arXiv:1706.03762."""
    config = RoFormerSeq2SeqConfig(
        vocab_size=500,
        d_model=64,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
    )
    config.pad_token_id = pad_token_id
    model = RoFormerForConditionalGeneration(config)
    words = model.get_input_embeddings().weight
    assert abs(8 * words[1:].std() - 1) < 0.02
    assert (words[0].abs().max() == 0) == (pad_token_id == 0)


def test_loss_and_gradients_are_marians():
    marian, ours = marian_and_ours()
    labels = TARGET.clone()
    labels[0, 6:] = labels[1, 2:] = -100
    for model in (marian, ours):
        model(**padded(TEXTS), labels=labels).loss.backward()
    close(ours(**padded(TEXTS), labels=labels).loss, marian(**padded(TEXTS), labels=labels).loss)
    for found, expected in [
        (ours.model.encoder.embeddings.word_embeddings.weight, marian.model.shared.weight),
        (
            ours.model.encoder.encoder.layer[0].attention.self.key.weight,
            marian.model.encoder.layers[0].self_attn.k_proj.weight,
        ),
        (
            ours.model.decoder.encoder.layer[2].output.LayerNorm.bias,
            marian.model.decoder.layers[2].final_layer_norm.bias,
        ),
    ]:
        assert expected.grad.abs().max() > 1e-3
        torch.testing.assert_close(found.grad, expected.grad, atol=1e-4, rtol=1e-4)


def rotate(heads):
    """Equation 34 after a projection: dimensions (1, 2), (3, 4), … of each head turn by m·θ_i."""

    def hook(module, args, output):
        b, s, width = output.shape
        d = width // heads
        pairs = torch.view_as_complex(output.double().view(b, s, heads, d // 2, 2))
        theta = 10000.0 ** (-2 * torch.arange(d // 2, dtype=torch.float64) / d)
        angles = torch.arange(s, dtype=torch.float64)[:, None] * theta
        turned = pairs * torch.polar(torch.ones_like(angles), angles)[:, None]
        return torch.view_as_real(turned).reshape(b, s, width)

    return hook


@torch.no_grad()
def test_rotary_is_marian_with_turned_queries_and_keys():
    """In self-attention of encoder and decoder, not in cross-attention; and no positions elsewhere."""
    marian, sinusoidal = marian_and_ours()
    ours = RoFormerForConditionalGeneration(RoFormerSeq2SeqConfig(**SIZES)).eval()
    ours.load_state_dict(sinusoidal.state_dict())
    for stack, heads in (
        (marian.model.encoder, "encoder_attention_heads"),
        (marian.model.decoder, "decoder_attention_heads"),
    ):
        stack.embed_positions.weight.zero_()
        for layer in stack.layers:
            for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj):
                projection.register_forward_hook(rotate(SIZES[heads]))
    inputs = {**padded(TEXTS), "decoder_input_ids": TARGET}
    expected = marian(**inputs).logits
    close(ours(**inputs).logits, expected, atol=1e-4)  # cosines and sines are float32 in any dtype
    assert (sinusoidal(**inputs).logits - expected).abs().max() > 1


@torch.no_grad()
def test_only_differences_of_positions_matter_to_rotation():
    model, inputs = make_model(), {"input_ids": TEXTS[0][None], "decoder_input_ids": TARGET[:1]}
    expected = model(**inputs).logits
    source, target = torch.arange(11)[None], torch.arange(9)[None]
    shifted = model(**inputs, position_ids=source + 300, decoder_position_ids=target + 7).logits
    close(shifted, expected, atol=1e-5)  # cosines and sines are float32 in any dtype
    assert (model(**inputs, position_ids=source * 2).logits - expected).abs().max() > 0.1
    assert (model(**inputs, decoder_position_ids=target * 2).logits - expected).abs().max() > 0.1


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@torch.no_grad()
def test_a_padded_batch_equals_its_texts(encoding, side, implementation):
    model = make_model(position_encoding=encoding)
    model.set_attn_implementation(implementation)
    targets = [TARGET[0], TARGET[1, :5], TARGET[2, :1]]
    decoder = {f"decoder_{name}": value for name, value in padded(targets, side).items()}
    batch = model(**padded(TEXTS, side), **decoder)
    for row, (text, target) in enumerate(zip(TEXTS, targets, strict=True)):
        alone = model(text[None], decoder_input_ids=target[None])
        place = decoder["decoder_attention_mask"][row].bool()
        # Rotary positions count padding on the left, and cosines and sines are float32 in any dtype.
        close(batch.logits[row, place], alone.logits[0], atol=1e-9 if encoding == "sinusoidal" else 1e-5)


@torch.no_grad()
def test_without_the_encoders_padding_the_same(packs_any_padding):
    inputs = {**padded(TEXTS), "decoder_input_ids": TARGET}
    expected = make_model(unpad_inputs=False)(**inputs)
    found = make_model()(**inputs)
    assert (found.encoder_last_hidden_state[1, 4:] == 0).all()  # left out
    close(found.logits, expected.logits)


@pytest.mark.parametrize("unpad", [None, True])
@torch.no_grad()
def test_a_label_on_a_hidden_target_token_counts(unpad):
    """A mask may hide target tokens that have labels: their states are computed, as in Marian."""
    inputs = {**padded(TEXTS), "labels": TARGET, "decoder_attention_mask": torch.ones_like(TARGET).tril()[:, :9]}
    expected = make_model()(**inputs, unpad_inputs=False)
    found = make_model()(**inputs, unpad_inputs=unpad)
    close(found.loss, expected.loss)
    close(found.logits, expected.logits)


@pytest.mark.parametrize("fields", [{}, {"sparse_prediction": True}])
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("parts", [1, 3])
def test_weights_of_parts_that_are_not_computed_are_not_missed(fields, encoding, parts, packs_any_padding):
    """Loss and gradients without padding, of source and target, and with logits where there are labels alone."""
    labels = TARGET.clone()
    labels[0, 2] = labels[1, 3:] = labels[2, 1:] = -100  # within a text, at the ends of others
    inputs = {**padded(TEXTS), "labels": labels}

    def learn(**fields):
        model = make_model(position_encoding=encoding, dropout=0.0, **fields).train()
        loss = 0.0
        for rows in torch.arange(3).chunk(parts):
            part = {name: value[rows] for name, value in inputs.items()}
            outputs = model(**part, num_items_in_batch=(labels != -100).sum())
            outputs.loss.backward()
            loss += outputs.loss.item()
        return outputs, loss, {name: weight.grad for name, weight in model.named_parameters()}

    expected, expected_loss, expected_gradients = learn(unpad_inputs=False)
    found, loss, gradients = learn(**fields)
    assert loss == pytest.approx(expected_loss, abs=1e-5)
    for name, gradient in expected_gradients.items():
        close(gradients[name], gradient, atol=2e-5)
    has_label = labels.chunk(parts)[-1] != -100
    logits = found.logits if "sparse_prediction" in fields else found.logits[has_label]
    close(logits, expected.logits[has_label])
    if not fields:  # nothing is left there but the bias
        assert torch.equal(found.logits[-1, 1], make_model(position_encoding=encoding).final_logits_bias[0])


@torch.no_grad()
def test_outputs_of_the_encoder_stand_for_the_source():
    model = make_model()
    inputs = padded(TEXTS)
    expected = model(**inputs, decoder_input_ids=TARGET).logits
    encoded = model.get_encoder()(**inputs)
    for given in (encoded, encoded.to_tuple()):
        found = model(encoder_outputs=given, attention_mask=inputs["attention_mask"], decoder_input_ids=TARGET)
        assert torch.equal(found.logits, expected)
    embedded = model.get_input_embeddings()(inputs["input_ids"])
    found = model(inputs_embeds=embedded, attention_mask=inputs["attention_mask"], decoder_input_ids=TARGET)
    assert torch.equal(found.logits, expected)
    assert torch.equal(model(**inputs, decoder_input_ids=TARGET, return_dict=False)[0], expected)
    assert torch.equal(
        model(**inputs, decoder_input_ids=TARGET, token_type_ids=0 * inputs["input_ids"]).logits, expected
    )


@torch.no_grad()
def test_labels_are_shifted_right():
    model, labels = make_model(), TARGET.clone()
    labels[0, 7:] = -100
    shifted = torch.full_like(labels, START)
    shifted[:, 1:] = labels[:, :-1].masked_fill(labels[:, :-1] == -100, PAD)
    assert torch.equal(model.prepare_decoder_input_ids_from_labels(labels), shifted)
    inputs = padded(TEXTS)
    outputs = model(**inputs, labels=labels)
    logits = model(**inputs, decoder_input_ids=shifted).logits
    assert outputs.past_key_values is None
    kept = labels != -100
    close(outputs.logits[kept], logits[kept])
    close(outputs.loss, -logits.log_softmax(-1)[kept].gather(1, labels[kept][:, None]).mean())
    parts = [
        model(
            input_ids=inputs["input_ids"][i : i + 1],
            attention_mask=inputs["attention_mask"][i : i + 1],
            labels=labels[i : i + 1],
            num_items_in_batch=kept.sum(),
        ).loss
        for i in range(3)
    ]
    close(sum(parts), outputs.loss)


@pytest.mark.parametrize("bias", [0.0, 0.5])
@pytest.mark.parametrize("bf16", [False, True])
@torch.no_grad()
def test_the_bias_of_the_logits_is_added_where_there_is_one(bias, bf16):
    model, inputs = make_model().float(), padded(TEXTS)
    model.final_logits_bias.fill_(0.0)
    model.final_logits_bias[0, 7] = bias
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        outputs = model(**inputs, decoder_input_ids=TARGET, output_hidden_states=True)
        expected = model.lm_head(outputs.decoder_hidden_states[-1])
    assert outputs.logits.dtype == expected.dtype == (torch.bfloat16 if bf16 else torch.float32)
    expected[..., 7] += bias
    close(outputs.logits, expected, atol=0)


@pytest.mark.parametrize("tied", [True, False])
def test_it_is_saved_and_loaded(tmp_path, tied):
    model = make_model(tie_word_embeddings=tied)
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    assert ("lm_head.weight" in weights) != tied
    assert "model.decoder.embeddings.word_embeddings.weight" not in weights  # shared in any case
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "roformer_seq2seq"
    assert type(AutoConfig.from_pretrained(tmp_path)) is RoFormerSeq2SeqConfig
    inputs = {"input_ids": TEXTS[0][None], "decoder_input_ids": TARGET[:1]}
    with torch.no_grad():
        expected = model(**inputs)
        for load in (RoFormerForConditionalGeneration, AutoModelForSeq2SeqLM):
            loaded = load.from_pretrained(tmp_path)
            assert type(loaded) is RoFormerForConditionalGeneration
            torch.testing.assert_close(loaded(**inputs).logits, expected.logits)  # rounding depends on the memory
        for load in (RoFormerSeq2SeqModel, AutoModel):
            loaded = load.from_pretrained(tmp_path)
            assert type(loaded) is RoFormerSeq2SeqModel
            torch.testing.assert_close(loaded(**inputs).encoder_last_hidden_state, expected.encoder_last_hidden_state)


@pytest.mark.parametrize(
    "name",
    ["model.decoder.encoder.layer.1.crossattention.self.key.weight", "model.encoder.embeddings.word_embeddings.weight"],
)
def test_it_is_loaded_whole_or_not_at_all(tmp_path, name):
    make_model().save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weight = weights.pop(name)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    # Decoder and encoder share the embeddings, so that both names are missing.
    with refused(
        ValueError, tmp_path, name.replace("encoder.embeddings", "decoder.embeddings"), "output_loading_info=True"
    ):
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    weights |= {name: weight, "model.decoder.encoder.layer.3.output.dense.bias": torch.zeros(32)}
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with refused(ValueError, tmp_path, "model.decoder.encoder.layer.3.output.dense.bias"):
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("size", [57, 44])
@torch.no_grad()
def test_the_vocabulary_can_be_resized(size, tied):
    model, inputs = (
        make_model(tie_word_embeddings=tied),
        {"input_ids": TEXTS[0][None] % 44, "decoder_input_ids": TARGET % 44},
    )
    inputs["input_ids"] = inputs["input_ids"].expand(3, -1)
    expected = model(**inputs).logits
    model.resize_token_embeddings(size)
    assert model.config.vocab_size == size
    found = model(**inputs).logits
    assert found.shape[-1] == size
    close(found[..., :44], expected[..., :44])
    if size > 50:
        model(torch.tensor([[size - 1]]), decoder_input_ids=torch.tensor([[size - 1]]))


@pytest.mark.parametrize("checkpointing", [{"use_reentrant": False}, {"use_reentrant": True}])
def test_gradients_under_checkpointing_are_the_same(checkpointing):
    expected, found = make_model(dropout=0.1).train(), make_model(dropout=0.1).train()
    found.gradient_checkpointing_enable(checkpointing)
    for model in (expected, found):
        torch.manual_seed(0)
        model(**padded(TEXTS), labels=TARGET).loss.backward()
    for (name, x), y in zip(found.named_parameters(), expected.parameters(), strict=True):
        assert y.grad is not None
        torch.testing.assert_close(x.grad, y.grad, atol=1e-4, rtol=1e-5, msg=name)


class Examples(torch.utils.data.Dataset):
    """Pairs of several lengths."""

    def __len__(self):
        return 6

    def __getitem__(self, i):
        return {"input_ids": make_ids(3 + i, seed=i).tolist(), "labels": make_ids(2 + i * i % 7, seed=i + 9).tolist()}


def test_accumulated_steps_learn_what_one_step_does(tmp_path):
    weights = []
    for batch_size in (6, 2):
        model = make_model(dropout=0.0)
        arguments = Seq2SeqTrainingArguments(
            str(tmp_path),
            max_steps=1,
            per_device_train_batch_size=batch_size,
            optim="sgd",
            learning_rate=0.1,
            gradient_accumulation_steps=6 // batch_size,
            max_grad_norm=0.0,
            save_strategy="no",
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
        )
        collator = DataCollatorForSeq2Seq(make_tokenizer(), model=model)
        Seq2SeqTrainer(model, arguments, train_dataset=Examples(), data_collator=collator).train()
        weights.append(model.state_dict())
    start = make_model().state_dict()
    for name, tensor in weights[0].items():
        torch.testing.assert_close(weights[1][name], tensor, atol=1e-5, rtol=1e-4, msg=name)
    assert not torch.equal(weights[0]["lm_head.weight"], start["lm_head.weight"])


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_compiled_in_one_graph(encoding):
    model = make_model(position_encoding=encoding).float()
    inputs = {**padded(TEXTS), "labels": TARGET}
    with torch.no_grad():
        expected = model(**inputs)
        found = torch.compile(model, fullgraph=True)(**inputs)
    close(found.logits, expected.logits, atol=1e-3)
    close(found.loss, expected.loss, atol=1e-3)


@pytest.mark.parametrize(
    ("inputs", "facts"),
    [
        ({"input_ids": TARGET}, ["decoder_input_ids", "decoder_inputs_embeds", "labels"]),
        ({"decoder_input_ids": TARGET}, ["input_ids", "inputs_embeds"]),
        ({"input_ids": TARGET + 50, "labels": TARGET}, ["input_ids", int(TARGET.max()) + 50, 49]),
        ({"input_ids": TARGET, "labels": TARGET + 50}, ["labels", int(TARGET.max()) + 50, 49, -100]),
        ({"input_ids": TARGET, "decoder_input_ids": TARGET[:, :4], "labels": TARGET}, ["labels", (3, 9), (3, 4)]),
        ({"input_ids": TARGET, "decoder_input_ids": TARGET + 50}, ["decoder_input_ids", int(TARGET.max()) + 50, 49]),
        (
            {"encoder_outputs": (torch.zeros(3, 5, 32),), "attention_mask": TARGET, "labels": TARGET},
            ["attention_mask", (3, 9), (3, 5)],
        ),
        ({"input_ids": TARGET[0], "labels": TARGET}, ["input_ids", (9,), "(batch, length)"]),
        ({"input_ids": TARGET, "attention_mask": TARGET[:, :3], "labels": TARGET}, ["attention_mask", (3, 3), (3, 9)]),
        ({"input_ids": TARGET, "token_type_ids": TARGET * 0 + 1, "labels": TARGET}, ["token_type_ids", 1, 0]),
    ],
)
def test_input_that_does_not_fit(inputs, facts):
    with refused(ValueError, *facts):
        make_model()(**inputs)


@pytest.mark.parametrize("name", ["decoder_start_token_id", "pad_token_id"])
def test_labels_need_special_tokens(name):
    with refused(ValueError, name, None, "decoder_input_ids", "labels"):
        make_model(**{name: None})(TARGET, labels=TARGET)


def test_help_describes_every_argument():
    bare, head = RoFormerSeq2SeqModel.forward, RoFormerForConditionalGeneration.forward
    described = set(re.findall(r"^ {12}(\w+): ", bare.__doc__, re.MULTILINE))
    assert set(inspect.signature(bare).parameters) - {"self", "kwargs"} <= described
    for name in set(inspect.signature(head).parameters) - set(inspect.signature(bare).parameters):
        assert f" {name}: " in head.__doc__


def test_card_and_info_say_what_it_is(tmp_path):
    make_model().save_pretrained(tmp_path)
    described = info(tmp_path)
    assert (described.family, described.task) == ("RoFormer for sequence to sequence", "translation")
    rows = described.rows()
    assert rows["size"] == f"{SIZES['encoder_layers']} layers x 32, 4 heads, feed-forward 48"
    assert rows["vocabulary"] == "50 entries" and rows["positions"].startswith("rotary")
    assert f"the decoder has {SIZES['decoder_layers']} layers" in rows["note"]
    write_card(tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert "pipeline_tag: translation" in card and 'AutoModelForSeq2SeqLM.from_pretrained("' in card
    assert "| layers of the decoder | 3 |" in card and "Chinese character" not in card and "character-level" not in card
    make_model(position_encoding="sinusoidal").save_pretrained(tmp_path)
    assert info(tmp_path).rows()["positions"] == "sinusoidal"


# A pipeline beside a checkpoint, as version 0.2.0 published it.
OLD_PIPELINE = """
from transformers import Pipeline

class TranslationPipeline(Pipeline):
    _load_tokenizer, _load_processor, _load_image_processor, _load_feature_extractor = True, False, False, False

    def _sanitize_parameters(self, **generate_kwargs):
        return {}, generate_kwargs, {}

    def preprocess(self, text):
        return self.tokenizer(text, return_tensors="pt")

    def _forward(self, inputs, **generate_kwargs):
        return {"output_ids": self.model.generate(**inputs, **generate_kwargs)}

    def postprocess(self, outputs):
        return [{"translation_text": self.tokenizer.decode(outputs["output_ids"][0], skip_special_tokens=True)}]
"""


def test_a_folder_with_its_own_pipeline_loads(tmp_path):
    """From such a folder, a pipeline also uses the installed classes."""
    model, tokenizer = make_model(vocab_size=len(make_tokenizer())), make_tokenizer()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    for name, content in files_with_code(tmp_path).items():
        (tmp_path / name).write_bytes(content)
    config = json.loads((tmp_path / "config.json").read_text())
    entry = {"impl": "seq2seq_pipelines.TranslationPipeline", "pt": ["AutoModelForSeq2SeqLM"], "type": "text"}
    (tmp_path / "config.json").write_text(json.dumps(config | {"custom_pipelines": {"translation": entry}}))
    (tmp_path / "seq2seq_pipelines.py").write_text(OLD_PIPELINE)
    assert type(AutoModelForSeq2SeqLM.from_pretrained(tmp_path)) is RoFormerForConditionalGeneration
    settings = dict(max_new_tokens=8, no_repeat_ngram_size=2)
    translate = pipeline("translation", model=str(tmp_path), trust_remote_code=True, device="cpu")
    written = model.generate(**tokenizer("a dog runs", return_tensors="pt"), **settings)
    expected = tokenizer.decode(written[0], skip_special_tokens=True)
    assert type(translate.model) is RoFormerForConditionalGeneration
    assert translate("a dog runs", **settings) == [{"translation_text": expected}] and expected


# What a machine on which this package is not installed does.
