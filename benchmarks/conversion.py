"""Time and peak memory of converting a base-size checkpoint, compared with only reading it in TensorFlow.

    python benchmarks/conversion.py [--tensorflow-python PATH] [--runs 5]

The checkpoint has random weights (12 layers of 768, 50,000 words, about 500 MB). Five processes run in turns: importing
this package, the command `roformer convert`, conversion from Python, reading every variable with this package, and reading
every variable with TensorFlow, in a Python that has it. Goals: no slower than TensorFlow's reading, and at most 1.5 times the
largest tensor more memory than the import alone.

"Process" is a whole process from start to end, "work alone" excludes its imports, of which the command has fewer. Conversion
also writes the weights, waits until they are on the disk, and computes the SHA-256 of both for the card.
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

import numpy as np
from rich.console import Console
from rich.table import Table

from modeling_roformer import RoFormerConfig
from modeling_roformer.conversion.families.roformer_v1 import weights
from modeling_roformer.conversion.formats.tensor_bundle_writer import write_bundle

MB = 1e6
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


def measure(*command: str) -> tuple[float, float | None, float | None]:
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
    parser.add_argument("--tensorflow-python", metavar="PATH", help="a Python that has TensorFlow")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--words", type=int, default=50000)
    chosen = parser.parse_args()
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
                result = measure(*command, *([f"{place}/output"] if "convert" in name else []))
                if run:  # the first round fills the caches
                    results[name].append(result)
                shutil.rmtree(f"{place}/output", ignore_errors=True)

    medians = {
        name: [None if None in column else statistics.median(column) for column in zip(*rows, strict=True)]
        for name, rows in results.items()
    }
    base = medians["import only"][2]
    table = Table(
        title=f"A checkpoint of {size / MB:,.0f} MB, largest tensor {largest / MB:,.0f} MB; medians of {chosen.runs} runs"
    )
    for column in ("", "process, s", "work alone, s", "peak, MB", "above import, MB", "/ largest"):
        table.add_column(column, justify="right" if column else "left")
    for name, (whole, work, peak) in medians.items():
        above = ["", ""]
        if name in ("convert in Python", "read"):
            above = [f"{(peak - base) / MB:,.0f}", f"{(peak - base) / largest:.2f}"]
        inside = ["", ""] if work is None else [f"{work:.2f}", f"{peak / MB:,.0f}"]
        table.add_row(name, f"{whole:.2f}", *inside, *above)
    Console().print(table)


if __name__ == "__main__":
    main()
