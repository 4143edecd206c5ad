"""Throughput and latency of vectors and of classification for Chinese texts of mixed length, on a CPU.

    python benchmarks/serving.py TEXTS MODEL [--classifier DIR] [--count 512] [--runs 5]

TEXTS is text with one document per line, or JSON Lines, also as .gz. MODEL is a saved masked language model or encoder,
such as the output of `roformer convert examples/roformer-mini-zh roformer-mini-zh`. DIR is a trained classifier. Each
way of serving has its own process, and they run in turns. Times are from texts to vectors or classes, tokenization
included. Agreement is the minimum cosine with the float32 model's vectors, or the share of texts with the same class.
The peers are sentence-transformers with its defaults, on a BERT of equal size with random weights, and transformers'
own RoFormer. Rows of torchao are left out where this package is not installed.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import peers
import reporting
import timing
import torch
from rich.progress import track
from rich.table import Table
from torch.nn import functional as F

from modeling_roformer.data import read_texts
from modeling_roformer.heads import mean_over_tokens

BATCH = 32  # sentence-transformers' own
LONGEST = 512  # tokens of a text
BERT, BERT_CHARACTERS = "sentence-transformers, BERT", "sentence-transformers, BERT of characters"
THEIRS = "transformers' RoFormer"
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


def batches_of(ids: Sequence[Sequence[int]], pad: int) -> list[tuple[list[int], np.ndarray, np.ndarray]]:
    """Return batches of similar length: indices, ids and mask."""
    order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
    found = []
    for start in range(0, len(order), BATCH):
        places = order[start : start + BATCH]
        padded = np.full((len(places), len(ids[places[0]])), pad, dtype=np.int64)
        mask = np.zeros_like(padded)
        for row, place in enumerate(places):
            padded[row, : len(ids[place])], mask[row, : len(ids[place])] = ids[place], 1
        found.append((places, padded, mask))
    return found


def make_serving(name: str, folder: str, task: str, threads: int) -> Callable:
    """Return the subject of a worker: texts to normalised vectors or classes; or one at a time, with seconds for
    each."""
    peers.quiet()
    torch.set_num_threads(threads)
    of_batch, tokenizer = load(name, folder, task, threads)

    @torch.inference_mode()
    def answers(texts: list[str]) -> np.ndarray:
        if tokenizer is None:  # sentence-transformers tokenizes itself
            return of_batch(texts)
        ids = tokenizer(texts, truncation=True, max_length=LONGEST)["input_ids"]
        found = [None] * len(texts)
        for places, padded, mask in batches_of(ids, tokenizer.pad_token_id):
            for place, answer in zip(places, of_batch(padded, mask), strict=True):
                found[place] = answer
        return np.stack(found)

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


def load(name: str, folder: str, task: str, threads: int) -> tuple[Callable, object]:
    """Return a function from a batch to its outputs, and the tokenizer; None if the function takes texts."""
    if name in (BERT, BERT_CHARACTERS):
        from sentence_transformers import SentenceTransformer

        import modeling_roformer  # noqa: F401, its import registers the tokenizer

        encoder = SentenceTransformer(folder, device="cpu")
        encoder.max_seq_length = LONGEST
        return lambda texts: encoder.encode(texts, normalize_embeddings=True), None
    from transformers import AutoTokenizer

    import modeling_roformer as ours

    tokenizer = AutoTokenizer.from_pretrained(folder)
    if name in ONNX:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(Path(folder) / "onnx" / ONNX[name], options, ["CPUExecutionProvider"])
        forward = of_graph(lambda inputs: session.run(None, inputs)[0], [node.name for node in session.get_inputs()])
    else:
        if name == THEIRS:
            import transformers.models.roformer as source
        else:
            source = ours
        way = OURS.get(name, {})
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

        def forward(ids, mask):
            return model(torch.from_numpy(ids), attention_mask=torch.from_numpy(mask))[0]

    def of_batch(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        found = forward(ids, mask)
        if task == "classes":
            return found.argmax(-1).numpy()
        return F.normalize(mean_over_tokens(found, torch.from_numpy(mask)).float(), dim=-1).numpy()

    return of_batch, tokenizer


def of_graph(run: Callable, taken: list[str]) -> Callable:
    """Return a function from ids and mask to the first output of a graph that takes the inputs `taken`."""

    def forward(ids: np.ndarray, mask: np.ndarray) -> torch.Tensor:
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return torch.from_numpy(run({name: inputs[name] for name in taken}))

    return forward


def write_berts(model: str, folder: Path) -> dict[str, str]:
    """Save two BERTs of the model's size: one for its tokens, one for the characters of its vocabulary."""
    from transformers import AutoTokenizer, BertConfig, BertModel, BertTokenizerFast

    import modeling_roformer  # noqa: F401

    config = json.loads((Path(model) / "config.json").read_text())
    tokenizer = AutoTokenizer.from_pretrained(model)
    same = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act")
    bert = BertModel(BertConfig(**{name: config[name] for name in same}, max_position_embeddings=LONGEST))
    of_characters = BertTokenizerFast(vocab=dict(tokenizer.get_vocab()))
    places = {}
    for name, reader in {BERT: tokenizer, BERT_CHARACTERS: of_characters}.items():
        places[name] = str(folder / name)
        bert.save_pretrained(places[name])
        reader.save_pretrained(places[name])
    return places


def write_encoder(model: str, folder: Path) -> Path:
    """Save the model without its head, whose graph outputs vectors instead of logits."""
    from transformers import AutoTokenizer

    import modeling_roformer

    place = folder / "encoder"
    modeling_roformer.RoFormerModel.from_pretrained(model).save_pretrained(place)
    AutoTokenizer.from_pretrained(model).save_pretrained(place)
    return place


def places_of(task: str, model: str, wanted: set[str], scratch: Path) -> dict[str, str]:
    """Return the model folder of each selected row."""
    places = write_berts(model, scratch) if task == "vectors" else {}
    places |= dict.fromkeys([THEIRS, *OURS], model)
    if wanted & ONNX.keys():
        from modeling_roformer.serving.onnx_export.export import export_onnx

        export_onnx(write_encoder(model, scratch) if task == "vectors" else model, scratch / "exported", int8=True)
        places |= dict.fromkeys(ONNX, str(scratch / "exported"))
    return {name: place for name, place in places.items() if name in wanted}


def agreement(task: str, answers: np.ndarray, expected: np.ndarray) -> float:
    return float((answers * expected).sum(-1).min() if task == "vectors" else (answers == expected).mean())


def show(task: str, places: dict[str, str], texts: list[str], chosen: argparse.Namespace) -> Table:
    """Measure each way of serving: all texts, and some one at a time; return the table."""
    workers = {
        name: timing.Worker(make_serving, name, place, task, chosen.threads)
        for name, place in track(places.items(), f"{task}: loading", transient=True)
    }
    alone = texts[: chosen.alone]
    expected = workers[FLOAT32].run(texts, False)[2]
    agreements = {name: agreement(task, worker.run(texts, False)[2], expected) for name, worker in workers.items()}
    calls = {}
    for name, worker in workers.items():
        worker.run(alone[:20], True)
        calls |= {(name, one): partial(worker.run, alone if one else texts, one) for one in (False, True)}
    found = timing.in_rounds(calls, chosen.runs, warm_up=False)
    timing.close(workers.values())
    table = Table(task, "texts/s", "speed-up", "one text, ms: median", "99th percentile", "agreement")
    together = {name: timing.Measurement([seconds for seconds, *_ in found[name, False]]) for name in workers}
    for name, all_texts in together.items():
        seconds = [one for *_, times in found[name, True] for one in times]
        table.add_row(
            name,
            reporting.rate(len(texts), all_texts),
            reporting.ratio(next(iter(together.values())), all_texts),
            reporting.duration(timing.Measurement(seconds), "{:.1f}", 1e-3),
            f"{1000 * statistics.quantiles(seconds, n=100)[98]:.1f}",
            "" if name in (BERT, BERT_CHARACTERS) else f"{agreements[name]:.4f}",
        )
    return table


def main() -> None:
    parser = reporting.make_parser(__doc__)
    parser.add_argument("texts", type=Path)
    parser.add_argument("model")
    parser.add_argument("--classifier", metavar="DIR")
    parser.add_argument("--count", type=int, default=512, help="number of texts sampled from the file")
    parser.add_argument("--alone", type=int, default=100, help="number of them served one at a time")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--only", nargs="+", metavar="NAME", help="rows to measure besides ours in float32")
    chosen = parser.parse_args()
    peers.quiet()
    texts = [text for _, text in read_texts([chosen.texts])]
    texts = random.Random(0).sample(texts, min(chosen.count, len(texts)))
    wanted = {FLOAT32, *(chosen.only or (BERT, BERT_CHARACTERS, THEIRS, *OURS, *ONNX))}
    if not find_spec("torchao"):
        wanted = {name for name in wanted if "torchao" not in name}
        print("rows of torchao are left out: it is not installed")
    models = {"vectors": chosen.model} | ({"classes": chosen.classifier} if chosen.classifier else {})
    with (
        tempfile.TemporaryDirectory() as scratch,
        reporting.Figures(chosen.output, "sentence-transformers", "onnxruntime", "torchao") as figures,
    ):
        for task, model in models.items():
            places = places_of(task, model, wanted, Path(scratch) / task)
            figures.add(task, show(task, places, texts, chosen))


if __name__ == "__main__":
    main()
