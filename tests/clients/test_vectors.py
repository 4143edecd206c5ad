"""Tools that use vectors: they get those of `roformer embed`, with the calls and the blocks of docs/vectors.md."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import pages
from helpers.paths import REPOSITORY

from modeling_roformer.conversion import convert
from modeling_roformer.hub import bundle
from modeling_roformer.serving.vectors.encoder import TextEncoder

pytestmark = pytest.mark.clients

PAGE = "docs/vectors.md"
SECTION = pages.PAGES[PAGE].partition("## Vectors in other tools\n")[2].partition("\n## ")[0]
TEXTS = ["房屋租赁合同到期，押金没有退还。", "被告借款五万元。", "两车相撞，被告负主要责任，应当赔偿损失。"]
LONG = "天气很好。" * 1500  # 6,002 tokens

# How each class is imported, and how the vectors of texts are taken from an object.
IMPORTS = {
    "SentenceTransformer": "sentence_transformers",
    "SetFitModel": "setfit",
    "BERTopic": "bertopic",
    "KeyBERT": "keybert",
    "Embeddings": "txtai",
    "HuggingFaceEmbeddings": "langchain_huggingface",
    "HuggingFaceEmbedding": "llama_index.embeddings.huggingface",
    "SentenceTransformerEmbeddingFunction": "chromadb.utils.embedding_functions",
}
VECTORS = {
    "SentenceTransformer": "model.encode(texts)",
    "SetFitModel": "model.encode(texts)",
    "BERTopic": "import_module('bertopic.backend._utils').select_backend(model.embedding_model).embed(texts)",
    "KeyBERT": "model.model.embed(texts)",
    "Embeddings": "model.batchtransform(texts)",
    "HuggingFaceEmbeddings": "model.embed_documents(texts)",
    "HuggingFaceEmbedding": "model.get_text_embedding_batch(texts)",
    "SentenceTransformerEmbeddingFunction": "model(texts)",
}


def rows():
    """Return the rows of the table as (call, argument for a folder with its code, argument for longer texts)."""
    table = [line.split(" | ")[1:] for line in SECTION.splitlines() if re.match(r"\| [a-z-]+ \| `", line)]
    return [[cell.strip(" |").strip("`") for cell in row] for row in table]


CALLS = {call.partition("(")[0].partition(".")[0]: (call, code, longer) for call, code, longer in rows()}


def script(call, texts):
    """Return code that computes `found`, the vectors that a call's object gives to texts."""
    name = call.partition("(")[0].partition(".")[0]
    imports = f"from importlib import import_module\nfrom {IMPORTS[name]} import {name}\n"
    return f"{imports}texts = {texts!r}\nmodel = {call}\nfound = {VECTORS[name]}\n"


def vectors(code):
    names = {}
    exec(code, names)
    return unit(names["found"])


def unit(found):
    found = np.array(found, dtype=np.float64)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def assert_same(found, expected):
    np.testing.assert_allclose(found, unit(expected), rtol=0, atol=2e-6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("clients")
    convert(REPOSITORY / "examples" / "roformer-mini-zh", place / "roformer-mini-zh")
    convert(REPOSITORY / "tests" / "fixtures" / "legacy" / "sim", place / "sim")
    return place


@pytest.fixture(autouse=True)
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    if chroma := sys.modules.get("chromadb.utils.embedding_functions"):
        # A model is kept by its name, whatever its arguments.
        chroma.SentenceTransformerEmbeddingFunction.models.clear()


def own(name, texts=TEXTS, **options):
    return TextEncoder(name, device="cpu", **options)(texts)


def test_every_tool_of_the_table_is_tested():
    assert set(CALLS) == set(IMPORTS) == set(VECTORS)


@pytest.mark.parametrize("name", CALLS)
def test_vectors_are_our_own(name):
    assert_same(vectors(script(CALLS[name][0], TEXTS)), own("roformer-mini-zh"))


@pytest.mark.parametrize("name", [name for name, row in CALLS.items() if row[2] != "make the model first"])
def test_longer_texts(name):
    call, _, longer = CALLS[name]
    found = vectors(script(f"{call[:-1]}, {longer})", [LONG]))
    assert_same(found, own("roformer-mini-zh", [LONG], max_length=8192))
    assert np.abs(found - unit(own("roformer-mini-zh", [LONG], max_length=4096))).max() > 1e-4


def test_a_length_in_the_configuration_holds_for_every_tool(folder, tmp_path):
    from txtai import Embeddings

    new = tmp_path / "longer"
    new.mkdir()
    for path in (folder / "roformer-mini-zh").iterdir():
        os.link(path, new / path.name)
    (new / "config.json").unlink()
    config = json.loads((folder / "roformer-mini-zh" / "config.json").read_text())
    (new / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 8192}))
    expected = own("roformer-mini-zh", [LONG], max_length=8192)
    assert_same(unit(Embeddings(path=str(new)).batchtransform([LONG])), expected)
    assert_same(unit(own(str(new), [LONG])), expected)


@pytest.fixture(scope="module")
def found_with_code(folder, tmp_path_factory):
    """Return the vectors of each tool from a folder with its code, in a process that cannot import the package."""
    bundle(folder / "roformer-mini-zh", folder / "with-code")
    code = "import json, sys\nsys.modules['modeling_roformer'] = None\nall_found = {}\n"
    for name, (call, argument, _) in CALLS.items():
        if argument != "make the model first":
            call = f"{call[:-1]}, {argument})".replace("roformer-mini-zh", "with-code")
            code += script(call, TEXTS) + f"all_found[{name!r}] = [list(map(float, row)) for row in found]\n"
    environment = os.environ | {"HF_MODULES_CACHE": str(tmp_path_factory.mktemp("modules"))}
    code += "print(json.dumps(all_found))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", [name for name, row in CALLS.items() if row[1] != "make the model first"])
def test_vectors_of_a_folder_with_its_code_are_our_own(name, found_with_code):
    assert_same(unit(found_with_code[name]), own("roformer-mini-zh"))


@pytest.mark.parametrize("name", [name for name in CALLS if name != "Embeddings"])
def test_vectors_of_roformer_sim_are_our_own(name):
    assert_same(vectors(script(CALLS[name][0].replace("roformer-mini-zh", "sim"), TEXTS)), own("sim"))


def test_txtai_reads_the_dense_layer_of_roformer_sim_as_the_page_says():
    (argument,) = re.findall(r'method="[\w-]+"', SECTION)
    call = CALLS["Embeddings"][0].replace("roformer-mini-zh", "sim")
    assert_same(vectors(script(f"{call[:-1]}, {argument})", TEXTS)), own("sim"))
    assert np.abs(vectors(script(call, TEXTS)) - unit(own("sim"))).max() > 0.01


# Blocks


BLOCKS = {
    re.search(r"^(?:from|import) (?!jieba|datasets)(\w+)", block.code, re.MULTILINE)[1]: block
    for block in pages.blocks(PAGE)
    if block.extra == "clients"
}


def run(tool):
    """Run the block of a tool as a script of its own, compare what it prints with the page, and return its names."""
    names = {"__name__": "__main__"}
    printed = pages.run_code(BLOCKS[tool], names)
    assert printed.endswith(BLOCKS[tool].output), f"{BLOCKS[tool]} prints\n{printed}"
    return names


def test_every_block_is_tested():
    tested = set(re.findall(r'run\("(\w+)"\)', Path(__file__).read_text(encoding="utf-8")))
    assert tested == set(BLOCKS) and all("import modeling_roformer\n" in block.code for block in BLOCKS.values())


def test_chromadb():
    cases = run("chromadb")["cases"].get(include=["embeddings", "documents"])
    assert_same(unit(cases["embeddings"]), own("roformer-mini-zh", cases["documents"]))


def test_keybert():
    for word, cosine in run("keybert")["keywords"]:
        one, other = unit(own("roformer-mini-zh", ["房屋租赁合同到期，押金没有退还。", word]))
        assert cosine == pytest.approx(one @ other, abs=1e-4)  # KeyBERT rounds to four digits


def test_setfit():
    """The encoder is trained, and saved as a folder whose vectors are the trained ones."""
    model = run("setfit")["model"]
    trained = unit(model.encode(TEXTS))
    assert np.abs(trained - unit(own("roformer-mini-zh"))).max() > 1e-3
    model.save_pretrained("few-saved")
    assert_same(trained, own("few-saved"))


def test_mteb(monkeypatch):
    """Score pairs of our own in the place of LCQMC, which is on the Hub."""
    from datasets import Dataset, DatasetDict
    from mteb.tasks.sts.zho.cmtebsts import LCQMC
    from scipy.stats import spearmanr

    pairs = {"sentence1": TEXTS, "sentence2": [TEXTS[0][:5], TEXTS[2], TEXTS[2][:9]], "score": [1, 0, 0.5]}

    def load_data(task, **options):
        task.dataset = DatasetDict({split: Dataset.from_dict(pairs) for split in task.metadata.eval_splits})
        task.data_loaded = True

    monkeypatch.setattr(LCQMC, "load_data", load_data)
    (scores,) = run("mteb")["results"].task_results[0].scores["test"]
    one, other = (unit(own("roformer-mini-zh", pairs[name])) for name in ("sentence1", "sentence2"))
    cosines = (one * other).sum(axis=1)
    assert scores["cosine_spearman"] == pytest.approx(spearmanr(cosines, pairs["score"]).statistic, abs=1e-5)
