"""Results of `roformer page`, started as the installed program outside the clone. The tests need no browser.

Expected results come from pipelines and `from_pretrained` in the process of the tests, where the package is registered.
"""

import re

import pytest
import torch
from helpers import command_line
from helpers.paths import REPOSITORY
from helpers.small_texts import LEGACY
from torch.nn import functional as F
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

import modeling_roformer as package
from modeling_roformer.conversion import convert

pytestmark = pytest.mark.page
_WHY = "the extra page is not installed: make test-slow"
_, httpx, gradio_client = (pytest.importorskip(name, reason=_WHY) for name in ("uvicorn", "httpx", "gradio_client"))
from helpers.page_server import PageProcess  # noqa: E402, needs uvicorn

# Longer than the 1,536 positions in config.json.
LONG = ("今天天气非常好，我们去看明月，" * 120)[:1690] + "天气非常[MASK]。"
PAIR = "今天天气非常好", "我们去看明月"
VECTORS = ["segments", "triplet", "rank", "compare"]


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    """Return a function that saves a model, and serves it by the installed program."""
    folder, running = tmp_path_factory.mktemp("elsewhere"), []

    def serve(kind, scale=1):
        source = REPOSITORY / "examples" / "roformer-mini-zh" if kind == "mini" else LEGACY / kind
        convert(source, folder / kind)
        if scale != 1:  # of the logits
            model = AutoModelForCausalLM.from_pretrained(folder / kind)
            for parameter in model.cls.predictions.transform.LayerNorm.parameters():
                parameter.data *= scale
            model.save_pretrained(folder / kind)
        running.append(PageProcess([command_line.ROFORMER], folder / kind, folder / f"{kind}.log"))
        client = gradio_client.Client(running[-1].address, verbose=False)

        def ask(tab: str, *texts: str) -> tuple:
            return client.predict(*texts, api_name=f"/{tab}")

        ask.address = running[-1].address
        tabs = [name[1:] for name in client.view_api(return_format="dict")["named_endpoints"]]
        return folder / kind, tabs, ask

    yield serve
    codes = [page.stop() for page in running]
    assert codes == [0] * len(running)
    for page in running:
        assert not re.search("Traceback|MISSING|UNEXPECTED", page.log.read_text())


def scores(shown: tuple) -> dict[str, float]:
    """Return the texts of a tab's table with their scores."""
    *_, table, _notes = shown
    return {row[-2]: row[-1] for row in table["data"]}


@torch.no_grad()
def filled(folder, text: str) -> dict[str, float]:
    """Return the five best words of a text's mask with their probabilities."""
    model, tokenizer = AutoModelForMaskedLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    assert type(model) is package.RoFormerForMaskedLM and type(tokenizer) is package.RoFormerTokenizer
    encoded = tokenizer(text, return_tensors="pt")
    logits = model(**encoded).logits[encoded["input_ids"] == tokenizer.mask_token_id]
    best = logits[0].softmax(-1).topk(5)
    return {
        tokenizer.decode([id]): value for id, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    }


@torch.no_grad()
def cosine(folder, texts, pooler=False) -> float:
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    outputs = [model(**tokenizer(text, return_tensors="pt")) for text in texts]
    rows = [out.pooler_output if pooler else out.last_hidden_state.mean(1) for out in outputs]
    return float(F.cosine_similarity(*rows))


@pytest.mark.parametrize(
    ("kind", "text"), [("mini", "这本书的内容很好，值得[MASK]。"), ("v2", "今天天气非常[MASK]。"), ("character", LONG)]
)
def test_masked_language_models(serve, kind, text):
    folder, tabs, ask = serve(kind)
    assert tabs == ["fill", "document", *VECTORS]
    found, expected = scores(ask("fill", text)), filled(folder, text)
    assert list(found) == list(expected) and found == pytest.approx(expected, abs=1e-5)
    pair = (LONG.replace("[MASK]", "好"), PAIR[1]) if kind == "character" else PAIR
    found = scores(ask("rank", *pair))
    assert found == {f"1. {pair[1]}": pytest.approx(cosine(folder, pair), abs=1e-5)}


def test_a_sim_compares(serve):
    folder, tabs, ask = serve("sim")
    assert tabs == [*VECTORS, "write"]
    expected = cosine(folder, PAIR, pooler=True)
    assert scores(ask("rank", *PAIR)) == {f"1. {PAIR[1]}": pytest.approx(expected, abs=1e-5)}
    assert len(ask("write", PAIR[0])[0]["data"]) == 3


def test_a_gpt_writes(serve):
    """Its logits are far apart, so that samples are the best words."""
    folder, tabs, ask = serve("gpt", scale=1000)
    assert tabs == ["segments", "write"]
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert type(model) is package.RoFormerForCausalLM
    encoded = tokenizer(PAIR[0], return_tensors="pt")
    written = model.generate(**encoded, max_new_tokens=64, do_sample=False)[0, encoded["input_ids"].shape[1] :]
    assert ask("write", PAIR[0])[0]["data"] == [[tokenizer.decode(written, skip_special_tokens=True)]] * 3


def test_refusals_and_other_sites(serve):
    """A script of another site cannot read answers; a web server before the page says how visitors reach it."""
    _, _, ask = serve("word")
    for text, said in (("押" * 1_000_000, "32,768 characters"), ("<script>", r"no \[MASK\]")):
        with pytest.raises(gradio_client.exceptions.AppError, match=said):
            ask("fill", text)
    with httpx.Client(base_url=ask.address) as client:
        asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
        for answer in (client.options("/gradio_api/call/fill", headers=asked), client.get("/config", headers=asked)):
            assert "access-control-allow-origin" not in answer.headers
        proxied = {"X-Forwarded-Host": "page.example", "X-Forwarded-Proto": "https"}
        assert client.get("/config", headers=proxied).json()["root"] == "https://page.example"
