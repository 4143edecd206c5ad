"""The pipelines that transformers 5 has removed work as in its version 4."""

from string import ascii_letters

import pytest
import torch
from helpers.messages import refused
from helpers.seq2seq_models import SIZES, make_model, make_tokenizer
from helpers.small_models import small_model
from tokenizers import Tokenizer, decoders, models
from transformers import AutoTokenizer, BartConfig, BartForConditionalGeneration, PreTrainedTokenizerFast, pipeline

from modeling_roformer import RoFormerForConditionalGeneration
from modeling_roformer.registration.registry import register

TASKS = {"translation": "translation_text", "summarization": "summary_text", "text2text-generation": "generated_text"}
TEXTS = ["a dog runs in the park .", "two men play ball .", "a dog"]
SETTINGS = dict(max_new_tokens=8, no_repeat_ngram_size=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    tokenizer = make_tokenizer()
    make_model(vocab_size=len(tokenizer)).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def written(folder, text, **settings):
    """Return the texts that `generate` writes, one call per text."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), RoFormerForConditionalGeneration.from_pretrained(folder)
    ids = model.generate(**tokenizer(text, return_tensors="pt"), **{**SETTINGS, "num_beams": 4, **settings})
    return tokenizer.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize(("task", "key"), TASKS.items())
def test_a_text_a_list_and_a_batch(folder, task, key):
    pipe = pipeline(task, model=str(folder))
    expected = [{key: written(folder, text)[0]} for text in TEXTS]
    assert all(row[key] for row in expected)
    assert pipe(TEXTS[0], **SETTINGS) == expected[:1]
    assert pipe(TEXTS, **SETTINGS) == expected
    assert pipe(TEXTS, batch_size=3, **SETTINGS) == expected
    assert list(pipe((text for text in TEXTS), **SETTINGS)) == [[row] for row in expected]


@pytest.mark.parametrize("task", ["translation", "translation_en_to_de"])
def test_translation_by_name_of_the_languages(folder, task):
    pipe = pipeline(task, model=str(folder), **SETTINGS)
    assert pipe(TEXTS[0]) == [{"translation_text": written(folder, TEXTS[0])[0]}]
    assert pipe(TEXTS[0], src_lang="en", tgt_lang="de") == pipe(TEXTS[0])  # whose tokenizer knows none


def test_languages_reach_a_tokenizer_that_knows_them(folder):
    pipe, asked = pipeline("translation_en_to_de", model=str(folder), **SETTINGS), []

    def build(text, return_tensors, truncation, src_lang, tgt_lang):
        asked.append((text, src_lang, tgt_lang))
        return pipe.tokenizer(text, return_tensors=return_tensors, truncation=truncation)

    pipe.tokenizer._build_translation_inputs = build
    pipe("a dog"), pipe("a dog", src_lang="fr", tgt_lang="it")
    assert asked == [("a dog", "en", "de"), ("a dog", "fr", "it")]


def test_several_answers_and_ids(folder):
    pipe = pipeline("translation", model=str(folder), **SETTINGS)
    expected = [{"translation_text": text} for text in written(folder, TEXTS[0], num_return_sequences=3)]
    assert pipe(TEXTS[0], num_return_sequences=3) == expected
    assert pipe(TEXTS[:1], num_return_sequences=3) == [expected]
    ids = pipe(TEXTS[0], return_tensors=True)[0]["translation_token_ids"]
    assert isinstance(ids, torch.Tensor)
    assert (
        pipe.tokenizer.decode(ids, skip_special_tokens=True) == pipe(TEXTS[0], return_text=True)[0]["translation_text"]
    )


def test_generation_takes_the_settings_of_the_call_then_of_the_pipeline_then_of_the_model(folder):
    pipe = pipeline("translation", model=str(folder), num_beams=1, **SETTINGS)
    assert pipe(TEXTS[0])[0]["translation_text"] == written(folder, TEXTS[0], num_beams=1)[0]
    assert pipe(TEXTS[0], num_beams=3)[0]["translation_text"] == written(folder, TEXTS[0], num_beams=3)[0]


def test_it_stops_after_a_sequence():
    """The sequence is of letters, which are several tokens."""
    vocabulary = {letter: i for i, letter in enumerate(["</s>", "<pad>", "<s>", *ascii_letters])}
    letters = Tokenizer(models.BPE(vocabulary, []))
    letters.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=letters, pad_token="<pad>", eos_token="</s>")
    model = make_model(vocab_size=len(tokenizer))
    pipe = pipeline("text2text-generation", model=model, tokenizer=tokenizer, num_beams=1, **SETTINGS)
    text = pipe("ab")[0]["generated_text"]
    assert len(text) > 4
    assert pipe("ab", stop_sequence=text[2:4])[0]["generated_text"] == text[:4]


def test_texts_are_cut_where_asked_for(folder):
    pipe = pipeline("translation", model=str(folder), **SETTINGS)
    pipe.tokenizer.model_max_length = 3
    assert pipe("a dog runs in the park", truncation=True) == pipe("a dog")
    assert pipe("a dog runs in the park", truncation=True) != pipe("a dog runs in the park")


def test_segments_are_left_out_and_a_prefix_is_put_in(folder):
    pipe = pipeline("summarization", model=str(folder), **SETTINGS)
    expected = pipe("two dog")
    pipe.tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    assert pipe("two dog") == expected
    pipe.prefix = "two "
    assert pipe("dog") == expected


def test_an_assistant(folder):
    model, asked = RoFormerForConditionalGeneration.from_pretrained(folder), []
    model.register_forward_hook(lambda *_: asked.append(1))
    settings = dict(model=str(folder), num_beams=1, max_new_tokens=8)
    expected = pipeline("translation", **settings)(TEXTS[0])
    assert pipeline("translation", **settings, assistant_model=model)(TEXTS[0]) == expected
    assert asked


def test_they_serve_transformers_own_models(tmp_path):
    tokenizer = make_tokenizer()
    config = {name: value for name, value in SIZES.items() if not name.startswith("decoder_start")}
    bart = BartForConditionalGeneration(
        BartConfig(**{**config, "vocab_size": len(tokenizer), "decoder_start_token_id": 2})
    )
    bart.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert list(pipeline("summarization", model=str(tmp_path))("a dog", max_new_tokens=4)[0]) == ["summary_text"]


def test_saved_pipelines_load(folder, tmp_path):
    pipe = pipeline("translation", model=str(folder), **SETTINGS)
    pipe.save_pretrained(tmp_path)
    assert pipeline("translation", model=str(tmp_path), **SETTINGS)(TEXTS[0]) == pipe(TEXTS[0])


def test_registering_twice_is_harmless(folder):
    register()
    assert pipeline("translation_en_to_de", model=str(folder), **SETTINGS)(TEXTS[0])


def test_other_removed_tasks_stay_removed(folder):
    with pytest.raises(KeyError, match="has been removed"):
        pipeline("question-answering", model=str(folder))


@pytest.mark.parametrize("text", [3, None, {"text": "a"}])
def test_what_is_no_text(folder, text):
    with refused(ValueError, type(text).__name__, "str"):
        pipeline("translation", model=str(folder))([text])


def test_a_model_that_does_not_write():
    model = small_model("RoFormerForMaskedLM")
    with refused(ValueError, "RoFormerForMaskedLM", "AutoModelForSeq2SeqLM"):
        pipeline("translation", model=model, tokenizer=make_tokenizer())
