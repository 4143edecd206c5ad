"""Time and peak memory of converting a base-size checkpoint, compared with only reading it in TensorFlow.

    python benchmarks/conversion.py [--tensorflow-python PATH] [--runs 5]

The checkpoint has random weights (12 layers of 768, 50,000 words, about 500 MB). Five processes run in turns: importing
this package, the command `roformer convert`, conversion from Python, reading every variable with this package, and
reading every variable with TensorFlow, in a Python that has it. Goals: no slower than TensorFlow's reading, and at most
1.5 times the largest tensor more memory than the import alone.

"Process" is a whole process from start to end, "work alone" excludes its imports, of which the command has fewer.
Conversion also writes the weights, waits until they are on the disk, and computes the SHA-256 of both for the card.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import measure
import numpy as np
from rich.table import Table

from modeling_roformer import RoFormerConfig
from modeling_roformer.conversion.families.roformer_v1 import weights
from modeling_roformer.conversion.formats.tensor_bundle_writer import write_bundle

# Read in the process itself: the system's figure for an ended child includes memory of its parent.
REPORT = """
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
if sys.platform == "linux":
    peak = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) * 1024
print(time.perf_counter() - start, peak)
"""
IMPORT = """
import resource, sys, time
import modeling_roformer
start = time.perf_counter()
"""
CONVERT = """
import resource, sys, time
from modeling_roformer.conversion.converter import convert
start = time.perf_counter()
convert(sys.argv[1], sys.argv[2])
"""
READ = """
import resource, sys, time
from modeling_roformer.conversion.formats.tensor_bundle import TensorBundle
start = time.perf_counter()
bundle = TensorBundle(sys.argv[1] + "/bert_model.ckpt")
for name in bundle.entries:
    bundle.read(name)
"""
READ_WITH_TENSORFLOW = """
import resource, sys, time
import tensorflow as tf
start = time.perf_counter()
reader = tf.train.load_checkpoint(sys.argv[1] + "/bert_model.ckpt")
for name in reader.get_variable_to_shape_map():
    reader.get_tensor(name)
"""


def make_checkpoint(folder: Path, config: RoFormerConfig) -> int:
    """Write a legacy checkpoint with random weights; return the size of its largest tensor in bytes."""
    random, largest = np.random.default_rng(0), 0

    def tensors():
        nonlocal largest
        for weight in weights(config):
            array = random.standard_normal(weight.shape, np.float32)
            largest = max(largest, array.nbytes)
            yield weight.variable, array

    write_bundle(folder / "bert_model.ckpt", tensors())
    fields = ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"]
    fields += ["hidden_act", "type_vocab_size"]
    (folder / "bert_config.json").write_text(json.dumps({field: getattr(config, field) for field in fields}))
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    characters = [chr(0x4E00 + i) for i in range(6000)]
    words = [a + b for a in characters[:300] for b in characters[:300]]
    entries = (special + characters + words)[: config.vocab_size]
    (folder / "vocab.txt").write_text("\n".join(entries) + "\n", encoding="utf-8", newline="\n")
    return largest


def run_process(*command: str) -> tuple[float, float | None, float | None]:
    """Return the seconds of a process and, if it reports them, of its work and its peak memory in bytes."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"a measured process failed:\n{done.stderr}")
    if REPORT not in "".join(command):
        return seconds, None, None
    work, peak = done.stdout.split()[-2:]
    return seconds, float(work), float(peak)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    keras = os.environ.get("ROFORMER_BERT4KERAS_PYTHON")
    parser.add_argument("--tensorflow-python", metavar="PATH", default=keras, help="a Python that has TensorFlow")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--words", type=int, default=50000)
    measure.add_output(parser)
    chosen = parser.parse_args()
    figures = measure.Figures(chosen.output)
    config = RoFormerConfig(vocab_size=chosen.words, num_hidden_layers=chosen.layers)
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "legacy"
        source.mkdir()
        largest = make_checkpoint(source, config)
        size = sum(file.stat().st_size for file in source.iterdir())
        commands = {
            "import only": [sys.executable, "-c", IMPORT + REPORT],
            "roformer convert": [str(Path(sys.executable).with_name("roformer")), "convert", str(source)],
            "convert in Python": [sys.executable, "-c", CONVERT + REPORT, str(source)],
            "read": [sys.executable, "-c", READ + REPORT, str(source)],
        }
        if chosen.tensorflow_python:
            read = [chosen.tensorflow_python, "-c", READ_WITH_TENSORFLOW + REPORT, str(source)]
            commands["read with TensorFlow"] = read
        results = {name: [] for name in commands}
        for run in range(chosen.runs + 1):
            for name, command in commands.items():
                result = run_process(*command, *([f"{place}/output"] if "convert" in name else []))
                if run:  # the first round fills the caches
                    results[name].append(result)
                shutil.rmtree(f"{place}/output", ignore_errors=True)

    sizes = f"{size / measure.MB:,.0f} MB, largest tensor {largest / measure.MB:,.0f} MB"
    table = Table(title=f"A checkpoint of {sizes}; medians of {chosen.runs} runs")
    for column in (
        "",
        "seconds, whole process",
        "without imports",
        "peak, MB",
        "beyond the imports, MB",
        "/ largest tensor",
    ):
        table.add_column(column, justify="right" if column else "left")
    base = statistics.median(peak for _, _, peak in results["import only"])
    for name, rows in results.items():
        whole, work, peaks = zip(*rows, strict=True)
        cells = [measure.Cell("{:.2f}", whole)]
        if None not in work:
            cells += [measure.Cell("{:.2f}", work), measure.Cell("{:,.0f}", [peak / measure.MB for peak in peaks])]
        if name in ("convert in Python", "read"):
            above = [peak - base for peak in peaks]
            cells.append(measure.Cell("{:,.0f}", [peak / measure.MB for peak in above]))
            cells.append(measure.Cell("{:.2f}", [peak / largest for peak in above]))
        table.add_row(name, *cells)
    with figures:
        figures.add("conversion", table)


if __name__ == "__main__":
    main()
