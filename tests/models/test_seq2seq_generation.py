"""Generation from sequence to sequence: as Marian where positions are the same, and each way as every other."""

import pytest
import torch
from helpers.seq2seq_models import PAD, START, make_ids, make_model, marian_and_ours, padded
from transformers import GenerationConfig
from transformers.cache_utils import EncoderDecoderCache

ENCODINGS = ["rotary", "sinusoidal"]
TEXTS = [make_ids(length, seed=length) for length in (11, 4, 7)]
# Random weights would repeat a word for ever.
SETTINGS = dict(max_new_tokens=14, no_repeat_ngram_size=2, return_dict_in_generate=True, output_scores=True)


def generate(model, inputs, **settings):
    return model.generate(**inputs, **{**SETTINGS, **settings})


def assert_same(found, expected, atol=1e-4):
    assert torch.equal(found.sequences, expected.sequences)
    for x, y in zip(found.scores, expected.scores, strict=True):
        torch.testing.assert_close(x, y, atol=atol, rtol=0)


@pytest.mark.parametrize("fields", [{}, {"scale_embedding": False, "activation_function": "relu"}])
@pytest.mark.parametrize("beams", [1, 4])
def test_with_sinusoidal_positions_it_writes_what_marian_does(beams, fields):
    marian, ours = marian_and_ours(**fields)
    settings = dict(num_beams=beams, num_return_sequences=beams, early_stopping=beams > 1, forced_eos_token_id=0)
    expected = generate(marian, padded(TEXTS), **settings)
    found = generate(ours, padded(TEXTS), **settings)
    assert len(set(expected.sequences.flatten().tolist())) > 10
    assert_same(found, expected)
    if beams > 1:
        torch.testing.assert_close(found.sequences_scores, expected.sequences_scores, atol=1e-4, rtol=0)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("beams", [1, 3])
def test_the_cache_changes_nothing(encoding, beams):
    model = make_model(position_encoding=encoding)
    expected = generate(model, padded(TEXTS), num_beams=beams, use_cache=False)
    found = generate(model, padded(TEXTS), num_beams=beams)
    assert_same(found, expected)
    assert expected.past_key_values is None
    assert isinstance(found.past_key_values, EncoderDecoderCache)
    fixed_size = {"cache_implementation": "static", "disable_compile": True}
    assert_same(generate(model, padded(TEXTS), num_beams=beams, **fixed_size), expected)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("beams", [1, 3])
def test_a_padded_batch_writes_what_its_texts_do(side, encoding, beams):
    model = make_model(position_encoding=encoding)
    batch = generate(model, padded(TEXTS, side), num_beams=beams).sequences
    for row, text in enumerate(TEXTS):
        alone = generate(model, {"input_ids": text[None]}, num_beams=beams).sequences[0]
        assert torch.equal(batch[row, : len(alone)], alone)
        assert (batch[row, len(alone) :] == PAD).all()


@pytest.mark.parametrize("cache", [{}, {"cache_implementation": "static", "disable_compile": True}])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_targets_begun_at_several_lengths(encoding, cache):
    """The decoder's prompts are padded on the left."""
    model = make_model(position_encoding=encoding)
    prompts = [torch.tensor([START, 30, 31, 32]), torch.tensor([START, 33]), torch.tensor([START])]
    decoder = {f"decoder_{name}": value for name, value in padded(prompts, "left").items()}
    outputs = generate(model, {**padded(TEXTS), **decoder}, no_repeat_ngram_size=0, **cache)
    batch, logits = outputs.sequences, torch.stack(outputs.scores, dim=1)
    for row, (text, prompt) in enumerate(zip(TEXTS, prompts, strict=True)):
        inputs = {"input_ids": text[None], "decoder_input_ids": prompt[None]}
        outputs = generate(model, inputs, no_repeat_ngram_size=0)
        alone, expected = outputs.sequences[0], torch.stack(outputs.scores, dim=1)[0]
        written = batch[row, 4 - len(prompt) :]
        assert torch.equal(written[: len(alone)], alone)
        torch.testing.assert_close(logits[row, : len(expected)], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_assisted_decoding_writes_the_same(encoding):
    model, assistant = make_model(position_encoding=encoding), make_model(position_encoding=encoding, decoder_layers=1)
    asked = []
    assistant.register_forward_hook(lambda *_: asked.append(1))
    for text in TEXTS:
        # What is not to be repeated is not known of guesses.
        settings = dict(no_repeat_ngram_size=0, max_new_tokens=12)
        expected = generate(model, {"input_ids": text[None]}, **settings)
        found = generate(model, {"input_ids": text[None]}, assistant_model=assistant, **settings)
        assert torch.equal(found.sequences, expected.sequences)
    assert asked


def test_segments_of_a_tokenizer_do_no_harm():
    model, inputs = make_model(), padded(TEXTS)
    expected = generate(model, inputs)
    assert_same(generate(model, {**inputs, "token_type_ids": 0 * inputs["input_ids"]}), expected, atol=0)


def test_generation_starts_as_the_config_says(tmp_path):
    model = make_model(decoder_start_token_id=7)
    assert generate(model, padded(TEXTS)).sequences[:, 0].tolist() == [7, 7, 7]
    model.generation_config = GenerationConfig.from_model_config(model.config)
    model.generation_config.num_beams = 3
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    assert loaded.generation_config.num_beams == 3
    assert_same(generate(loaded, padded(TEXTS)), generate(model, padded(TEXTS)), atol=0)
