"""Tables of the documentation: run the scripts that measure them, and print their results into the pages.

    python benchmarks/figures.py [NAME …] [--force]     run what is missing or out of date, or the parts that are named
    python benchmarks/figures.py --status               list each table, and whether its code has changed since
    python benchmarks/figures.py --render               only print docs/figures/*.json into the pages
    python benchmarks/figures.py --gpu [--output FOLDER]               run the parts that need a GPU, and print them
    python benchmarks/figures.py --gpu --device cpu --quick            try them with small models, without a GPU

A table stands in README.md or docs/*.md between `<!-- figure NAME: TABLE -->` and `<!-- /figure -->`. `PARTS` has the
command of each NAME, which writes docs/figures/NAME.json with its tables. Parts run one after the other, in the order
below, and need an idle machine: each finished part is kept, and the same command resumes. Data of others is read from
ROFORMER_SHARED_DATA, or from ../shared/data.

Results of a GPU are in FOLDER/NAME.json, by default in build/figures-gpu, or build/figures-gpu-trial on a CPU and with
--quick: copied into docs/figures/, they are printed into the pages by --render. A part that fails leaves its earlier
results there, which are not printed.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from glob import glob
from pathlib import Path

import reporting

import modeling_roformer
from modeling_roformer.files import write_whole
from modeling_roformer.training import ScriptParser

ROOT, JSON, BUILD = reporting.ROOT, reporting.ROOT / "docs" / "figures", reporting.ROOT / "build" / "figures"
BENCHMARKS, RUNS = ROOT / "benchmarks", JSON / "runs"
DATA = Path(os.environ.get("ROFORMER_SHARED_DATA") or ROOT.parent / "shared" / "data")
CARD = ROOT / "examples" / "roformer-mini-zh" / "README.md"
PAGES = (*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", CARD)
BLOCK = re.compile(
    r"(<!-- figure (?P<name>[\w-]+)(?:: (?P<table>[^>]+))? -->\n)(?P<text>(?:(?!<!-- figure ).)*?)(<!-- /figure -->)",
    re.DOTALL,
)
# In the line below a table that was printed before its results were kept.
NOT_KEPT = "its results file was not kept"
NOT_MEASURED = "Not yet measured."
ON_GPU = "## On a GPU\n"
MODELS, TOKENIZERS, SERVING = "modeling_roformer/*.py", "tokenization/*.py", "serving/onnx_export/*.py"
TRAINING, POSITIONS = "training/**/*.py", "examples/paper/compare_position_embeddings.py"
CURVES, MASKED = "examples/paper/run_curves.py", "benchmarks/masked_accuracy.py"

# Folders in build/figures that commands read, and the commands that make them. Others are trained as the page of the
# table describes, which takes hours, so keep.py keeps their runs in RUNS; {held_out} is the split of the model's
# training, by examples/hold_out.py. {data} is the folder of others' data; patterns such as *.gz are expanded.
INPUTS = {
    "mini": "roformer convert examples/roformer-mini-zh {mini}",
    "to_512": "roformer convert {data}/legacy_tf_trained {to_512}",
    "split": "python examples/split_questions.py {data}/questions/cmrc2018_dev.jsonl.gz --passage paragraph"
    " --group article --output {split}",
    "retriever": "python examples/train_retriever.py {mini} --train {split}/train.jsonl"
    " --validation {split}/validation.jsonl --output {retriever} --max-length 256 --epochs 2 --bf16",
    "search": "python benchmarks/search.py {search} --model {mini} --trained {retriever}/model --split {split}"
    " --questions {data}/questions/*.jsonl.gz --texts {data}/zh_corpus/*.jsonl.gz",
    "classifier": "python examples/finetune_classification.py {mini} --train examples/reviews.csv --text review"
    " --label sentiment --output {classifier}",
}


@dataclass(frozen=True)
class Part:
    """Command of a script in this folder, and the code that it measures besides itself, as patterns of paths.

    `hours`: it takes hours, so it runs only if it is named. `gpu`: it needs a GPU, so it runs with --gpu.
    """

    command: str
    code: tuple[str, ...]
    hours: bool = False
    gpu: bool = False

    @property
    def script(self) -> str:
        return self.command.split()[0]

    def paths(self) -> list[str]:
        """Return the patterns of the code, with the script and the modules that all scripts share."""
        scripts = (f"benchmarks/{name}" for name in (self.script, "peers.py", "reporting.py", "timing.py"))
        return [f":(glob){path}" for path in (*scripts, *self.code)]

    def is_command_of(self, results: dict) -> bool:
        """Return whether results are of this command. Its options and words are compared, not the names of folders."""
        words = [word for word in self.command.split()[1:] if not re.search(r"[{/]", word)]
        theirs = shlex.split(results["command"])[2:]
        ours, of_results = ([word for word in command if word.startswith("--")] for command in (words, theirs))
        return ours == of_results and set(words) <= set(theirs)


def names_in(command: str) -> list[str]:
    """Return the names of the folders that a command reads, besides the data of others."""
    return [name for name in re.findall(r"\{(\w+)\}", command) if name != "data"]


def of_runs(kind: str, name: str, *scripts: str) -> Part:
    """Return a part whose table trained.py makes of runs of `scripts`, which are kept in RUNS."""
    folders = f"{{{name}}}" if kind == "laboratory" else f"{{{name}}}/*/"
    return Part(f"trained.py {kind} {folders}", (*scripts, TRAINING, MODELS), hours=True)


# In the order of their runs: the machine's noise first, then from short to long.
PARTS = {
    "noise": Part("noise.py", ("benchmarks/inference.py", "benchmarks/training.py", MODELS)),
    "tokenization": Part("tokenization.py --vocabulary {data}/roformer_chinese_base/vocab.txt", (TOKENIZERS,)),
    "token-ids": Part(
        "tokenization.py --vocabulary {data}/roformer_chinese_base/vocab.txt"
        " --reference {data}/roformer_chinese_base/reference.jsonl.gz",
        (TOKENIZERS,),
    ),
    "defaults": Part(
        "defaults.py --texts {data}/zh_corpus/reviews.jsonl.gz {data}/zh_corpus/msra_news.jsonl.gz", (MODELS,)
    ),
    "generation": Part("generation.py", (MODELS,)),
    "serving": Part(
        "serving.py {data}/zh_corpus/reviews.jsonl.gz {mini} --classifier {classifier}/model --count 256",
        (MODELS, TOKENIZERS, SERVING),
    ),
    "prediction": Part(
        "prediction.py {data}/zh_corpus/reviews.jsonl.gz {classifier}/model",
        (MODELS, TOKENIZERS, "serving/prediction/*.py", "serving/*.py"),
    ),
    "chunks": Part(
        "chunks.py {reader}/model {reader}/unseen.jsonl --count 100",
        (MODELS, TOKENIZERS, "serving/prediction/*.py", "serving/answers.py"),
        hours=True,
    ),
    "padding": Part("padding.py", (MODELS,)),
    "trainer": Part("trainer.py --sizes mini", (MODELS,)),
    "trainer-base": Part("trainer.py --sizes base --batch 8 --steps 1 --runs 2 --precisions float32", (MODELS,)),
    "training": Part("training.py", (MODELS,)),
    "inference": Part("inference.py", (MODELS,)),
    "embedding": Part(
        "embedding.py --model {mini} --texts {data}/zh_corpus/reviews.jsonl.gz --speed 2000 --runs 7",
        (MODELS, TOKENIZERS, "serving/vectors/*.py"),
    ),
    "search": Part(
        "search.py {search} --model {mini} --trained {retriever}/model",
        (MODELS, TOKENIZERS, "serving/vectors/*.py", TRAINING),
        hours=True,
    ),
    "search-sizes": Part(
        "search.py {search} --model {mini} --trained {retriever}/model --sizes 200000 1000000",
        (TOKENIZERS, "serving/vectors/*.py"),
        hours=True,
    ),
    "onnx": Part(
        "onnx_export.py --model {mini} --texts {data}/zh_corpus/*.jsonl.gz --masks 1800",
        (MODELS, TOKENIZERS, SERVING, MASKED),
    ),
    "length": Part(
        "length.py --corpus {data}/zh_corpus/laws.jsonl.gz --model {to_512} --trained 512"
        " --lengths 256 512 1024 2048 4096",
        (MODELS, TOKENIZERS, MASKED),
    ),
    "attention": Part("attention.py --models 2", (MODELS,)),
    "characters": of_runs("characters", "characters", "examples/paper/char_lm.py", CURVES),
    "laboratory": of_runs("laboratory", "laboratory", "examples/paper/position_laboratory/**/*.py", CURVES),
    "multi30k": of_runs("translation", "multi30k", "examples/translate.py"),
    "masked-accuracy": Part(
        "masked_accuracy.py --models {mini} {to_512} --held-out {held_out}/held_out/*.jsonl.gz --train {held_out}/train"
        " --long {held_out}/held_out/laws.jsonl.gz",
        (MODELS, TOKENIZERS),
        True,
    ),
    "classification": of_runs("classification", "classification", "examples/finetune_classification.py"),
    "english": of_runs("positions", "english", POSITIONS, CURVES),
    "statutes": of_runs("triplets", "statutes", "examples/finetune_triplet.py", "examples/paper/statute_triplets.py"),
    "control": of_runs("triplets", "control", "examples/finetune_triplet.py", "examples/paper/windows.py"),
    "order": of_runs("order", "order", "examples/finetune_triplet.py", "examples/paper/order_triplets.py"),
    "articles": of_runs("retrieval", "articles", "examples/train_retriever.py"),
    "retrieval": of_runs("retrieval", "retrieval", "examples/train_retriever.py"),
    "reading": of_runs("retrieval", "reading", "examples/train_retriever.py"),
    "positions": of_runs("positions", "positions", POSITIONS, CURVES),
    "gpu-inference": Part("inference.py --device cuda", (MODELS,), gpu=True),
    "gpu-training": Part("training.py --device cuda", (MODELS,), gpu=True),
    "gpu-padding": Part("padding.py --device cuda", (MODELS,), gpu=True),
    "gpu-generation": Part(
        "generation.py --device cuda --ways greedy --prompts 128 --batches 1 64 --lengths --runs 5",
        (MODELS,),
        gpu=True,
    ),
    "gpu-embedding": Part(
        "embedding.py --device cuda --peers --dtype bfloat16 --speed 2000 --runs 3",
        (MODELS, TOKENIZERS, "serving/vectors/*.py"),
        gpu=True,
    ),
    "gpu-pretraining": Part("pretraining.py --device cuda", (MODELS, TRAINING), gpu=True),
}
# The README's rows: their text, the table of a part, the cells to show, and the words by which both rows are found. The
# row of a GPU is left out while it has no results.
SUMMARY = (
    (
        "forward pass, 12 layers of width 768, one text of 4,096 tokens",
        "inference",
        "forward, cpu",
        "{tokens/s} tokens/s, {peak, MB} MB",
        ("4,096", "RoFormer"),
        ("4,096", "transformers' RoFormer"),
    ),
    (
        "the same, 512 tokens",
        "inference",
        "forward, cpu",
        "{tokens/s} tokens/s",
        ("512", "RoFormer"),
        ("512", "transformers' RoFormer"),
    ),
    (
        "a training step, 8 texts of 512 tokens, no attention dropout",
        "training",
        "cpu",
        "{seconds} s, {peak, MB} MB",
        ("0", "RoFormer"),
        ("0", "transformers' RoFormer"),
    ),
    (
        "vectors of 256 reviews of mixed length",
        "serving",
        "vectors",
        "{texts/s} texts/s",
        ("ours, unpadded",),
        ("transformers' RoFormer",),
    ),
    (
        "tokenization, with the same vocabulary",
        "tokenization",
        "tools",
        "{million characters/s} million characters/s",
        ("ids",),
        ("ids, transformers' RoFormerTokenizer",),
    ),
    (
        "forward pass on a GPU in bfloat16, 32 texts of 512 tokens",
        "gpu-inference",
        "forward, cuda",
        "{tokens/s} tokens/s",
        ("RoFormer",),
        ("transformers' RoFormer",),
    ),
)


def read(name: str, folder: Path = JSON) -> dict | None:
    """Return the results of a part, or None if there are none."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def render(name: str, table: str | None, folder: Path = JSON) -> str | None:
    """Return the text between the comments of a table, or None if its results are missing."""
    if name == "summary":
        return summary(folder)
    results = read(name, folder)
    if results is None:
        return None
    return f"{reporting.to_markdown(results['tables'][table])}\n\n{reporting.origin(results)}\n"


def summary_results(folder: Path = JSON) -> dict[str, dict | None]:
    """Return the results of the README's rows by part, or None for missing ones. Missing ones of a GPU are left out."""
    results = {name: read(name, folder) for _, name, *_ in SUMMARY}
    return {name: part_results for name, part_results in results.items() if part_results or not PARTS[name].gpu}


def summary(folder: Path = JSON) -> str | None:
    """Return the README's table, or None if results of a row are missing."""
    results = summary_results(folder)
    if not all(results.values()):
        return None
    rows = [summary_row(row, results[row[1]]) for row in SUMMARY if row[1] in results]
    columns = ["", "here", "transformers' RoFormer"]
    origins = dict.fromkeys(map(reporting.origin, results.values()))
    return f"{reporting.to_markdown({'columns': columns, 'rows': rows})}\n\n{' '.join(origins)}\n"


def summary_row(row: tuple, results: dict) -> list[str]:
    """Return the cells of one of the README's rows, from the results of its part."""
    label, _, name, template, *wanted = row
    table, cells = results["tables"][name], [label]
    for words in wanted:
        texts = next(texts for texts in reporting.texts_of(table) if set(words) <= set(texts))
        # Of columns with the same title, the first one counts.
        cells.append(template.format_map(dict(reversed([*zip(table["columns"], texts, strict=True)]))))
    return cells


def rendered(page: str, folder: Path = JSON) -> str:
    """Return a page with the tables of all results that there are."""

    def new(match: re.Match) -> str:
        return match[1] + (render(match["name"], match["table"], folder) or match["text"]) + match[5]

    return BLOCK.sub(new, page)


def changed(name: str, results: dict) -> str:
    """Return the code of a part that has changed since its results, or ""."""
    if results["commit"].endswith("+"):
        return "uncommitted code"
    if not PARTS[name].is_command_of(results):
        return f"the command, which was {results['command']}"
    command = ["git", "-C", ROOT, "diff", "--name-only", "--end-of-options", results["commit"], "--"]
    command += PARTS[name].paths()
    done = subprocess.run(command, capture_output=True, text=True)
    return ", ".join(done.stdout.split()) if done.returncode == 0 else "a commit that is not here"


def status() -> None:
    """Print a line for each table, and how many have been printed."""
    blocks = [(page, match) for page in PAGES for match in BLOCK.finditer(page.read_text(encoding="utf-8"))]
    printed = 0
    for page, match in blocks:
        is_summary = match["name"] == "summary"
        results = summary_results() if is_summary else {match["name"]: read(match["name"])}
        lines = [
            f"{name}: {code}"
            for name, part_results in results.items()
            if part_results and (code := changed(name, part_results))
        ]
        if not all(results.values()):
            state = "not yet printed"
        else:
            printed += 1
            state = f"changed since: {'; '.join(lines)}" if lines else "current"
        print(f"{page.relative_to(ROOT)}, {match['name']}{': ' * bool(match['table'])}{match['table'] or ''}: {state}")
    print(f"{printed} of {len(blocks)} tables are printed from docs/figures; {len(blocks) - printed} not yet")


def run(command: str) -> None:
    """Run a command whose folders are named in braces."""
    folders = {name: shlex.quote(str(input_folder(name))) for name in names_in(command)} | {
        "data": shlex.quote(str(DATA))
    }
    program, *arguments = shlex.split(command.format_map(folders))
    arguments = [path for argument in arguments for path in sorted(glob(argument)) or [argument]]
    program = sys.executable if program == "python" else str(Path(sys.executable).with_name(program))
    subprocess.run([program, *arguments], cwd=ROOT, check=True)


def input_folder(name: str) -> Path:
    """Return the folder of an input: of runs that are kept, or of BUILD."""
    return RUNS / name if (RUNS / name).exists() else BUILD / name


def make_input(name: str) -> None:
    """Make a folder that the command of a part reads, if it is missing, and those that its own command reads."""
    if input_folder(name).exists():
        return
    if (command := INPUTS.get(name)) is None:
        sys.exit(f"{BUILD / name} is missing: train it as the page of this table describes")
    for other in names_in(command):
        if other != name:
            make_input(other)
    run(command)


def measure_part(name: str) -> None:
    """Run a part, keep its results, and print them into the pages."""
    BUILD.mkdir(parents=True, exist_ok=True)
    for needed in names_in(PARTS[name].command):
        make_input(needed)
    run(f"python benchmarks/{PARTS[name].command} --output build/figures/{name}")
    (BUILD / f"{name}.json").replace(JSON / f"{name}.json")
    write_pages()


def write_pages() -> None:
    """Print the results into all pages."""
    for page in PAGES:
        old = page.read_text(encoding="utf-8")
        if (new := rendered(old)) != old:
            write_whole(page, new)


def measure_on_gpu(device: str, quick: bool, output: Path) -> None:
    """Run the parts that need a GPU, and print the section of docs/figures.md and the rows of README."""
    output.mkdir(parents=True, exist_ok=True)
    names, failed = [name for name, part in PARTS.items() if part.gpu], []
    with tempfile.TemporaryDirectory(prefix="running-", dir=output) as folder:
        for name in names:
            script, *options = PARTS[name].command.replace("--device cuda", f"--device {device}").split()
            options += [*["--quick"] * quick, "--output", f"{folder}/{name}"]
            done = subprocess.run([sys.executable, BENCHMARKS / script, *options])
            if done.returncode == 0 and (found := Path(folder, f"{name}.json")).exists():
                write_whole(output / found.name, found.read_text(encoding="utf-8"))
            else:
                failed.append(name)
        page = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
        section = re.split(r"\n(?=## )", page[page.index(ON_GPU) :], maxsplit=1)[0]
        found = [(row, read(row[1], Path(folder))) for row in SUMMARY if PARTS[row[1]].gpu]
        rows = [f"| {' | '.join(summary_row(row, results))} |" for row, results in found if results]
        print("docs/figures.md:\n", rendered(section, Path(folder)), "README.md:\n", *rows, sep="\n")
    if failed:
        sys.exit(f"these parts failed, as their output above says: {', '.join(failed)}")


def main() -> None:
    parser = ScriptParser(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"parts to run: {', '.join(PARTS)}")
    parser.add_argument("--force", action="store_true", help="run the parts that are current, too")
    parser.add_argument("--status", action="store_true")
    parser.add_argument("--render", action="store_true")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda", help="with --gpu")
    parser.add_argument("--quick", action="store_true", help="with --gpu: small models, few texts, one run")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="with --gpu")
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(PARTS):
        parser.error(f"no part is named {', '.join(sorted(unknown))}; expected {', '.join(PARTS)}")
    if chosen.status or chosen.render:
        status() if chosen.status else write_pages()
        return
    if chosen.gpu:
        trial = "-trial" if chosen.quick or chosen.device == "cpu" else ""
        measure_on_gpu(chosen.device, chosen.quick, chosen.output or ROOT / "build" / f"figures-gpu{trial}")
        return
    if not Path(modeling_roformer.__file__).is_relative_to(ROOT):
        sys.exit(f"modeling_roformer comes from {Path(modeling_roformer.__file__).parent}: install it from {ROOT}")
    for name in chosen.names or [name for name, part in PARTS.items() if not (part.hours or part.gpu)]:
        results = read(name)
        if results and not changed(name, results) and not (chosen.names or chosen.force):
            print(f"{name}: current")
            continue
        print(f"{name}: measuring", flush=True)
        measure_part(name)
    write_pages()


if __name__ == "__main__":
    main()
