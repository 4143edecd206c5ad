"""The installed program `roformer`: each command in a process of its own, outside the clone, and what it made.

Expected numbers come from bert4keras, or from `from_pretrained` in the process of the tests, where the package is
registered.
"""

import json
import os
import subprocess

import numpy as np
import pyarrow.parquet
import pytest
import torch
from helpers import command_line
from helpers.paths import REPOSITORY
from helpers.small_texts import LEGACY, TEXTS
from helpers.vector_folders import shards_of
from huggingface_hub import ModelCard
from onnxruntime import InferenceSession
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

from modeling_roformer import RoFormerTokenizer
from modeling_roformer.conversion.formats.tensor_bundle import TensorBundle
from modeling_roformer.vocabulary_maker.word_vocabulary import make_word_vocabulary

MINI = REPOSITORY / "examples" / "roformer-mini-zh"
FAMILIES = {
    "word": "RoFormer",
    "character": "RoFormer",
    "v2": "RoFormer-V2",
    "sim": "RoFormer-Sim",
    "gpt": "RoFormer-GPT",
}
PAIR = ("今天天气非常好", "我们去看明月")
QUERY = "今天天气非常好"
MORE_KINDS = ("mini", "sim", "v2")
CORPUS = [*TEXTS[1:], "唐朝是中国历史上一个繁荣的时代。" * 100, QUERY]  # the long one has 1,600 characters


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("elsewhere")


@pytest.fixture(scope="module")
def roformer(folder):
    """Return a function that runs the program in a folder of the test, and returns what it prints."""

    def roformer(*arguments, environment=os.environ) -> str:
        environment = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [command_line.ROFORMER, *map(str, arguments)], cwd=folder, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return roformer


@pytest.fixture(scope="module")
def saved(roformer, folder):
    """Return a folder of models that the program has converted, and verified."""
    for name, source in ({family: LEGACY / family for family in FAMILIES} | {"mini": MINI}).items():
        roformer("convert", source, f"saved/{name}", "--verify")
    bare = folder / "saved" / "bare"  # as on the Hub
    bare.mkdir()
    for name in ("config.json", "model.safetensors", "vocab.txt"):
        (bare / name).hardlink_to(folder / "saved" / "mini" / name)
    return folder / "saved"


@torch.no_grad()
def vectors_of(folder, pooler=False) -> np.ndarray:
    """Return the vectors of CORPUS, one text at a time."""
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    assert type(model).__module__ == "modeling_roformer.model" and type(tokenizer) is RoFormerTokenizer
    outputs = [model(**tokenizer(text, return_tensors="pt")) for text in CORPUS]
    return torch.cat([out.pooler_output if pooler else out.last_hidden_state.mean(1) for out in outputs]).numpy()


@pytest.fixture(scope="module")
def told(saved, folder):
    """Return what `roformer info --json` prints of each source and of what it was converted to."""
    places = [place for family in FAMILIES for place in (LEGACY / family, saved / family)]
    done = command_line.run_in_one_process(folder, [["info", str(place), "--json"] for place in places])
    return {place: json.loads(out) for place, (_, out, _) in zip(places, done, strict=True)}


@pytest.mark.parametrize("family", FAMILIES)
def test_convert_and_info(saved, told, family):
    reference = np.load(LEGACY / family / "reference.npz")
    ids = torch.from_numpy(reference["token_ids"]).long()
    auto_class = AutoModelForCausalLM if family in ("gpt", "sim") else AutoModelForMaskedLM
    model = auto_class.from_pretrained(saved / family).eval()
    with torch.no_grad():
        segments = torch.from_numpy(reference["segment_ids"]).long()
        logits = model(ids, token_type_ids=segments, attention_mask=(ids != 0).long()).logits
    name = "logits" if "logits" in reference else "probabilities"
    found = logits if name == "logits" else logits.softmax(-1)
    np.testing.assert_allclose(found[ids != 0], reference[name][ids != 0], rtol=0, atol=2e-5)
    for stated in (told[LEGACY / family], told[saved / family]):
        assert (stated["family"], stated["parameters"]) == (FAMILIES[family], model.num_parameters())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bare", *MORE_KINDS])
def test_embed_and_rank(saved, roformer, folder, kind):
    (folder / "corpus.txt").write_text("\n".join(CORPUS), encoding="utf-8")
    vectors = folder / f"{kind}-vectors"
    roformer("embed", saved / kind, "corpus.txt", vectors, "--keep-text", "--max-length", 4096)
    table = pyarrow.parquet.ParquetDataset(shards_of(vectors)).read()
    found, expected = np.stack(table["vector"].to_numpy()), vectors_of(saved / kind, pooler=kind == "sim")
    assert table["text"].to_pylist() == CORPUS
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)
    if kind == "bare":
        ranking = roformer("rank", QUERY, vectors, "--top-k", 3, "--model", saved / kind)
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        best = np.argsort(-expected @ expected[-1])[:3]
        places = [ranking.index(f"corpus.txt:{i + 1}") for i in best]
        assert best[0] == len(CORPUS) - 1 and places == sorted(places)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["character", "word"])
def test_export_onnx(saved, roformer, folder, level):
    """The pair has token types, which transformers' own tokenizer would not return."""
    roformer("export-onnx", saved / level, f"{level}-onnx")
    exported = folder / f"{level}-onnx"
    tokenizer, model = (
        AutoTokenizer.from_pretrained(exported),
        AutoModelForMaskedLM.from_pretrained(saved / level).eval(),
    )
    pair = tokenizer(*PAIR, return_tensors="pt")
    with torch.no_grad():
        expected, other = model(**pair).logits, model(pair["input_ids"]).logits
    (found,) = InferenceSession(exported / "onnx" / "model.onnx").run(
        ["logits"], {k: x.numpy() for k, x in pair.items()}
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)
    assert (expected - other).abs().max() > 1e-3
    assert ("明月" in tokenizer.tokenize(PAIR[1])) == (level == "word")
    # Another program would compute other ids from a tokenizer.json, which holds no segmenter.
    assert (exported / "tokenizer.json").is_file() == (level == "character")
    card = ModelCard.load(exported / "README.md")
    assert card.data.library_name == {"word": "onnx", "character": "transformers.js"}[level]
    assert ("@huggingface/transformers" in card.text) == (level == "character")
    if level == "character":
        assert Tokenizer.from_file(str(exported / "tokenizer.json")).encode(*PAIR).ids == pair["input_ids"][0].tolist()


@pytest.mark.slow
def test_vocab_and_vocab_init(saved, roformer, folder):
    """In several processes, which import the program again where processes are spawned."""
    (folder / "documents.txt").write_text("判决书，明月和判决。\n" * 40, encoding="utf-8")
    words = folder / "words.txt"
    base = saved / "character" / "vocab.txt"
    roformer("vocab", "documents.txt", "--base", base, "--output", words, "--num-proc", 2)
    make_word_vocabulary([folder / "documents.txt"], base, folder / "expected.txt", num_proc=1)
    assert words.read_bytes() == (folder / "expected.txt").read_bytes()
    roformer("vocab-init", saved / "character", words, "grown")
    tokenizer = AutoTokenizer.from_pretrained(folder / "grown")
    assert type(tokenizer) is RoFormerTokenizer and tokenizer.tokenize("明月") == ["明月"]
    old, new = (load_file(place / "model.safetensors") for place in (saved / "character", folder / "grown"))
    name = "roformer.embeddings.word_embeddings.weight"
    characters = AutoTokenizer.from_pretrained(saved / "character").convert_tokens_to_ids(["明", "月"])
    expected = old[name][characters].mean(0)
    assert torch.allclose(new[name][tokenizer.convert_tokens_to_ids("明月")], expected, rtol=0, atol=1e-6)
    model = AutoModelForMaskedLM.from_pretrained(folder / "grown")
    assert type(model).__module__ == "modeling_roformer.heads" and len(tokenizer) == model.config.vocab_size


@pytest.mark.slow
def test_bundle_push_and_pull(hub, saved, roformer, folder):
    roformer("bundle", saved / "v2", "bundled")
    for name in ("heads.py", "model.py", "rotary.py"):
        assert (folder / "bundled" / name).read_bytes() == (REPOSITORY / "modeling_roformer" / name).read_bytes()
    auto_map = json.loads((folder / "bundled" / "config.json").read_text())["auto_map"]
    assert auto_map["AutoModelForMaskedLM"] == "heads.RoFormerForMaskedLM"
    roformer("push", saved / "v2", "somebody/v2", environment=hub.environment)
    roformer("pull", "somebody/v2", "pulled", environment=hub.environment)
    for file in (path for path in (saved / "v2").iterdir() if path.is_file()):
        assert hub.repos["somebody/v2"].files()[file.name] == (folder / "pulled" / file.name).read_bytes(), file


@pytest.mark.slow
def test_export_tf(saved, roformer, folder):
    roformer("export-tf", saved / "v2", "v2-tf")
    written, source = (TensorBundle(place / "bert_model.ckpt") for place in (folder / "v2-tf", LEGACY / "v2"))
    assert written.entries.keys() <= source.entries.keys() and len(written.entries) == 14
    for name in written.entries:
        assert np.array_equal(written.read(name), source.read(name)), name
