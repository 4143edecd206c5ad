"""Programs that start processes of their own, with a folder that has its code, compute what the package does."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch
from helpers.paths import REPOSITORY
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

from modeling_roformer.conversion import convert
from modeling_roformer.hub import bundle

pytestmark = pytest.mark.clients

BIN = Path(sys.executable).parent
QUESTIONS = [("今天天气非常", ["好。", "热。"]), ("北京", ["下雨", "天气好"])]
CHOOSE = """
task: choose
dataset_path: json
dataset_kwargs: {data_files: {test: questions.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: 0
target_delimiter: ""
metric_list: [{metric: acc}]
"""
WRITE = """
task: write
dataset_path: json
dataset_kwargs: {data_files: {test: questions.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: ""
generation_kwargs: {max_gen_toks: 6, until: ["[UNK]"], do_sample: false}
metric_list: [{metric: exact_match}]
"""
FILL = """
import mlflow
from transformers import pipeline

import modeling_roformer


class Fill(mlflow.pyfunc.PythonModel):
    def load_context(self, context):
        self.pipeline = pipeline("fill-mask", model=context.artifacts["folder"])

    def predict(self, context, model_input: list[str]) -> list[str]:
        return [self.pipeline(text)[0]["token_str"] for text in model_input]


mlflow.models.set_model(Fill())
"""
TEMPLATE = '{"chat_template": "{% for message in messages %}{{ message.content }}{% endfor %}"}'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("clients")
    convert(REPOSITORY / "examples" / "roformer-mini-zh", place / "roformer-mini-zh")
    convert(REPOSITORY / "tests" / "fixtures" / "legacy" / "gpt", place / "converted" / "gpt")
    bundle(place / "converted" / "gpt", place / "gpt-with-code")
    return place


@pytest.fixture(autouse=True)
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HF_MODULES_CACHE", str(folder / "modules"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv(
        "PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}"
    )  # as in an active environment: mlflow runs uvicorn


@pytest.fixture(scope="module")
def gpt(folder):
    name = folder / "converted" / "gpt"
    return AutoModelForCausalLM.from_pretrained(name).eval(), AutoTokenizer.from_pretrained(name)


def written(gpt, text, count):
    """Return the words that our model writes after a text."""
    model, tokenizer = gpt
    inputs = tokenizer(text, return_tensors="pt")
    ids = model.generate(**inputs, max_new_tokens=count, do_sample=False)[0, inputs.input_ids.shape[1] :]
    return tokenizer.decode(ids, skip_special_tokens=True)


# lm-eval


def evaluate(model, *tasks):
    command = [BIN / "lm_eval", "run", "--model", "hf", "--model_args", f"pretrained={model},trust_remote_code=True"]
    command += ["--include_path", ".", "--tasks", ",".join(tasks), "--device", "cpu", "--log_samples"]
    command += ["--output_path", "found"]
    return subprocess.run(command, capture_output=True, text=True, timeout=900)


def test_lm_eval(gpt, folder):
    rows = [json.dumps({"question": text, "choices": choices}) for text, choices in QUESTIONS]
    Path("questions.jsonl").write_text("\n".join(rows), encoding="utf-8")
    Path("choose.yaml").write_text(CHOOSE, encoding="utf-8")
    Path("write.yaml").write_text(WRITE, encoding="utf-8")
    done = evaluate("gpt-with-code", "choose", "write")
    assert done.returncode == 0, done.stderr[-3000:]
    samples = {}
    for path in Path("found").rglob("samples_*.jsonl"):
        lines = path.read_text(encoding="utf-8").splitlines()
        samples[path.name.split("_")[1]] = sorted(map(json.loads, lines), key=lambda row: row["doc_id"])

    model, tokenizer = gpt
    for row, (text, choices) in zip(samples["choose"], QUESTIONS, strict=True):
        before = len(tokenizer(text).input_ids)
        for response, choice in zip(row["resps"], choices, strict=True):
            ids = tokenizer(text + choice, return_tensors="pt").input_ids
            with torch.inference_mode():
                scores = model(ids).logits[0, before - 1 : -1].double().log_softmax(-1)
            expected = scores.gather(1, ids[0, before:, None]).sum().item()
            assert float(response[0][0]) == pytest.approx(expected, abs=1e-4)
    for row, (text, _) in zip(samples["write"], QUESTIONS, strict=True):
        assert row["resps"][0][0] == written(gpt, text, 6).split("[UNK]")[0]


def test_lm_eval_refuses_an_encoder(folder):
    """Its first and last token are missing: see `tests/tokenization/test_decoding.py`."""
    bundle("roformer-mini-zh", "encoder-with-code")
    Path("questions.jsonl").write_text(json.dumps({"question": "北京", "choices": ["好", "热"]}), encoding="utf-8")
    Path("choose.yaml").write_text(CHOOSE, encoding="utf-8")
    done = evaluate("encoder-with-code", "choose")
    assert done.returncode != 0 and "eos_token_id" in done.stderr.splitlines()[-1]


# Servers


def post(address, content):
    """Return (status, body) of a request."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(address, json.dumps(content).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=300) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@contextmanager
def served(*command, health):
    """Run a server on a free port of 127.0.0.1, and yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [*map(str, command), "--host", "127.0.0.1", "--port", str(port)]
    with Path("server.log").open("w+", encoding="utf-8") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            until = time.monotonic() + 600
            while True:
                try:
                    urllib.request.urlopen(address + health, timeout=5).close()
                    break
                except OSError:
                    log.seek(0)
                    assert server.poll() is None and time.monotonic() < until, log.read()[-3000:]
                    time.sleep(0.5)
            yield address
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def test_transformers_serve_completes_but_does_not_chat(gpt, folder):
    model = str(folder / "gpt-with-code")
    asked = {"model": model, "max_tokens": 6, "temperature": 0}
    messages = [{"role": "user", "content": "北京"}]
    with served(BIN / "transformers", "serve", model, "--trust-remote-code", "--device", "cpu", health="/health") as at:
        for text, _ in QUESTIONS:
            status, body = post(f"{at}/v1/completions", {**asked, "prompt": text})
            assert status == 200 and json.loads(body)["choices"][0]["text"] == written(gpt, text, 6)
        status, body = post(f"{at}/v1/completions", {**asked, "prompt": "北京", "stream": True})
        parts = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]
        assert "".join(part["choices"][0]["text"] for part in parts) == written(gpt, "北京", 6)
        assert post(f"{at}/v1/chat/completions", {**asked, "messages": messages})[0] == 500


def test_transformers_serve_chats_with_a_template(gpt, folder):
    model = str(folder / "gpt-with-code")
    command = (BIN / "transformers", "serve", model, "--trust-remote-code", "--device", "cpu")
    with served(*command, "--chat-template-kwargs", TEMPLATE, health="/health") as at:
        messages = [{"role": "user", "content": "[CLS]北京"}]
        asked = {"model": model, "max_tokens": 6, "temperature": 0, "messages": messages}
        status, body = post(f"{at}/v1/chat/completions", asked)
    assert status == 200 and json.loads(body)["choices"][0]["message"]["content"] == written(gpt, "北京", 6)


def test_mlflow():
    import mlflow

    Path("fill.py").write_text(FILL, encoding="utf-8")
    folder = {"folder": "roformer-mini-zh"}
    mlflow.pyfunc.save_model("fill", python_model="fill.py", artifacts=folder, pip_requirements=["modeling-roformer"])
    texts = ["今天[MASK]非常好。", "被告应当[MASK]借款。"]
    fill = pipeline("fill-mask", model="roformer-mini-zh", device="cpu")
    expected = [fill(text)[0]["token_str"] for text in texts]
    assert mlflow.pyfunc.load_model("fill").predict(texts) == expected
    command = (BIN / "mlflow", "models", "serve", "--model-uri", "fill", "--env-manager", "local")
    with served(*command, health="/ping") as at:
        status, body = post(f"{at}/invocations", {"inputs": texts})
    assert status == 200 and json.loads(body)["predictions"] == expected
