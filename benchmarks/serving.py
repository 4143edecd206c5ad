"""Throughput and latency of vectors and of classification for Chinese texts of mixed length, on a CPU.

    python benchmarks/serving.py TEXTS MODEL [--classifier DIR] [--count 512] [--only ROW …]

TEXTS is text with one document per line, or JSON Lines, also as .gz. MODEL is a saved masked language model or encoder,
such as the output of `roformer convert examples/roformer-mini-zh roformer-mini-zh`. DIR is a trained classifier. Each
way of serving has its own process, and they run in turns. Times are from texts to vectors or classes, tokenization
included. Agreement is the minimum cosine with the float32 model's vectors, or the share of texts with the same class.
The peers are sentence-transformers with its defaults, on a BERT of equal size with random weights, and transformers'
own RoFormer. Rows of torchao are left out where this package is not installed.
"""

import random
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import peers
import reporting
import timing
import torch
import transformers
from peers import THEIRS
from rich.table import Table
from torch.nn import functional as F

import modeling_roformer as ours
from modeling_roformer.data import read_texts
from modeling_roformer.heads import mean_over_tokens
from modeling_roformer.serving.onnx_export.export import export_onnx

BATCH = 32  # sentence-transformers' own
LONGEST = 512  # tokens of a text
THREADS, RUNS = 2, 5
BERTS = ("sentence-transformers, BERT", "sentence-transformers, BERT of characters")
FLOAT32 = "ours, float32"
OURS = {
    FLOAT32: {},
    "ours, unpadded": {"unpad": True},
    "ours, unpadded, bfloat16": {"unpad": True, "dtype": torch.bfloat16},
    "ours, compiled": {"compiled": True},
    "ours, compiled, bfloat16": {"compiled": True, "dtype": torch.bfloat16},
    "ours, unpadded, int8": {"unpad": True, "int8": "torch"},
    "ours, unpadded, int8 by torchao": {"unpad": True, "int8": "torchao"},
    "ours, compiled, int8 by torchao": {"compiled": True, "int8": "torchao"},
}
ONNX = {"ours, ONNX Runtime": "model.onnx", "ours, ONNX Runtime, int8": "model_quantized.onnx"}


def make_serving(name: str, folder: str, task: str) -> Callable:
    """Return the subject of a worker: texts to normalised vectors or classes; or one at a time, with seconds for
    each."""
    peers.quiet()
    torch.set_num_threads(THREADS)
    answers = by_sentence_transformers(folder) if name in BERTS else by_batches(name, folder, task)

    def serve(texts: list[str], alone: bool) -> list[float] | np.ndarray:
        if not alone:
            return answers(texts)
        seconds = []
        for text in texts:
            begun = time.perf_counter()
            answers([text])
            seconds.append(time.perf_counter() - begun)
        return seconds

    return serve


def by_sentence_transformers(folder: str) -> Callable[[list[str]], np.ndarray]:
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(folder, device="cpu")
    encoder.max_seq_length = LONGEST
    return lambda texts: encoder.encode(texts, normalize_embeddings=True)


def by_batches(name: str, folder: str, task: str) -> Callable[[list[str]], np.ndarray]:
    """Return a function from texts to vectors or classes, in batches of texts of similar length."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    forward = load_graph(folder, ONNX[name]) if name in ONNX else load_model(name, folder, task)

    @torch.inference_mode()
    def answers(texts: list[str]) -> np.ndarray:
        ids = tokenizer(texts, truncation=True, max_length=LONGEST)["input_ids"]
        order, found = sorted(range(len(ids)), key=lambda i: -len(ids[i])), {}
        for start in range(0, len(order), BATCH):
            places = order[start : start + BATCH]
            batch = tokenizer.pad({"input_ids": [ids[place] for place in places]}, return_tensors="pt")
            outputs, mask = forward(batch["input_ids"], batch["attention_mask"]), batch["attention_mask"]
            vectors = F.normalize(mean_over_tokens(outputs, mask).float(), dim=-1) if task == "vectors" else None
            found |= zip(places, outputs.argmax(-1) if vectors is None else vectors, strict=True)
        return torch.stack([found[place] for place in range(len(texts))]).numpy()

    return answers


def load_graph(folder: str, file: str) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(Path(folder) / "onnx" / file, options, ["CPUExecutionProvider"])
    taken = [node.name for node in session.get_inputs()]

    def forward(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
        return torch.from_numpy(session.run(None, {name: inputs[name].numpy() for name in taken})[0])

    return forward


def load_model(name: str, folder: str, task: str) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    source, way = transformers.models.roformer if name == THEIRS else ours, OURS.get(name, {})
    heads = {"vectors": "RoFormerModel", "classes": "RoFormerForSequenceClassification"}
    model = getattr(source, heads[task]).from_pretrained(folder, dtype=way.get("dtype", torch.float32)).eval()
    model.config.unpad_inputs = way.get("unpad", False)
    if way.get("int8") == "torchao":
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

        quantize_(model, Int8DynamicActivationInt8WeightConfig())
    elif way.get("int8"):
        model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    if way.get("compiled"):
        model = torch.compile(model, dynamic=True)
    return lambda ids, mask: model(ids, attention_mask=mask)[0]


def write_berts(model: str, folder: Path) -> dict[str, str]:
    """Save two BERTs of the model's size: one for its tokens, one for the characters of its vocabulary."""
    config, tokenizer = (of.from_pretrained(model) for of in (transformers.AutoConfig, transformers.AutoTokenizer))
    size = peers.Size(config.num_hidden_layers, config.hidden_size, config.vocab_size, LONGEST)
    bert = peers.make_model(peers.BERT, "Model", size)
    of_characters = transformers.BertTokenizerFast(vocab=dict(tokenizer.get_vocab()))
    places = {}
    for name, reader in zip(BERTS, (tokenizer, of_characters), strict=True):
        places[name] = str(folder / name)
        bert.save_pretrained(places[name])
        reader.save_pretrained(places[name])
    return places


def export(task: str, model: str, folder: Path) -> str:
    """Export the model, for vectors without its head, and return the folder."""
    if task == "vectors":
        ours.RoFormerModel.from_pretrained(model).save_pretrained(folder / "encoder")
        transformers.AutoTokenizer.from_pretrained(model).save_pretrained(folder / "encoder")
        model = str(folder / "encoder")
    export_onnx(model, folder / "exported", int8=True)
    return str(folder / "exported")


def measure(task: str, places: dict[str, str], texts: list[str]) -> Table:
    """Measure each way of serving: all texts, and some one at a time; return the table."""
    workers = {name: timing.Worker(make_serving, name, place, task) for name, place in places.items()}
    alone = texts[:100]
    answers = {name: worker.run(texts, False)[2] for name, worker in workers.items()}
    for worker in workers.values():
        worker.run(alone[:20], True)
    calls = {(name, one): (w, alone if one else texts, one) for name, w in workers.items() for one in (False, True)}
    found = timing.alternate(calls, RUNS, warm_up=False, title=task)
    for worker in workers.values():
        worker.close()
    table = Table(task, "texts/s", "speed-up", "one text, ms: median", "99th percentile", "agreement")
    first, expected = next(iter(workers)), answers[FLOAT32]
    for name, vectors_or_classes in answers.items():
        agreement = (
            (vectors_or_classes * expected).sum(-1).min()
            if task == "vectors"
            else (vectors_or_classes == expected).mean()
        )
        seconds = [one for times in found[name, True].results for one in times]
        table.add_row(
            name,
            reporting.rate(len(texts), found[name, False]),
            reporting.ratio(found[first, False], found[name, False]),
            reporting.duration(timing.Measurement(seconds), "{:.1f}", 1e-3),
            f"{1000 * statistics.quantiles(seconds, n=100)[98]:.1f}",
            "" if name in BERTS else f"{agreement:.4f}",
        )
    return table


def main() -> None:
    parser = reporting.make_parser(__doc__)
    parser.add_argument("texts", type=Path)
    parser.add_argument("model")
    parser.add_argument("--classifier", metavar="DIR")
    parser.add_argument("--count", type=int, default=512, help="number of texts sampled from the file")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="rows to measure besides ours in float32")
    chosen = parser.parse_args()
    peers.quiet()
    texts = [text for _, text in read_texts([chosen.texts])]
    texts = random.Random(0).sample(texts, min(chosen.count, len(texts)))
    wanted = {FLOAT32, *(chosen.only or (*BERTS, THEIRS, *OURS, *ONNX))}
    if not find_spec("torchao"):
        wanted = {name for name in wanted if "torchao" not in name}
        print("rows of torchao are left out: it is not installed")
    models = {"vectors": chosen.model} | ({"classes": chosen.classifier} if chosen.classifier else {})
    with (
        tempfile.TemporaryDirectory() as scratch,
        reporting.Figures(chosen.output, "sentence-transformers", "onnxruntime", "torchao") as figures,
    ):
        for task, model in models.items():
            places = write_berts(model, Path(scratch)) if task == "vectors" else {}
            places |= dict.fromkeys([THEIRS, *OURS], model)
            if wanted & ONNX.keys():
                places |= dict.fromkeys(ONNX, export(task, model, Path(scratch) / task))
            figures.add(task, measure(task, {name: place for name, place in places.items() if name in wanted}, texts))


if __name__ == "__main__":
    main()
