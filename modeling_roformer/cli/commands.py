"""The command line: `roformer COMMAND …`.

Every command ends in one of two ways: its result on stdout and exit code 0, or one sentence on stderr and exit code 1
(2 if the command itself was mistyped). Set ROFORMER_DEBUG=1 to see where an error came from.

Commands start at once: each imports what it needs when it gets there, torch and transformers last, since they take seconds
and a mistyped path should not. `__init__.py` leaves their import out in the command `roformer`.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .. import __version__
from ..output.console import sentence_of

app = typer.Typer(
    name="roformer",
    help="Convert, publish and inspect RoFormer checkpoints.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
plot = typer.Typer(help="Draw what the paper draws, as a PNG.", no_args_is_help=True)
app.add_typer(plot, name="plot")
stdout = Console()
stderr = Console(stderr=True)


def show_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


def check_address(address: str | None) -> str | None:
    """Before the other arguments, one of which may be missing because `--ray` without an address took it."""
    if address is not None:
        from ..cluster.address import host_and_port

        host_and_port(address)
    return address


def show_note(sentence: str) -> None:
    stderr.print(f"note: {sentence}", highlight=False, markup=False, soft_wrap=True)


@app.callback()
def commands(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """Convert, publish and inspect RoFormer checkpoints."""


@app.command()
def convert(
    legacy_dir: Annotated[
        Path,
        typer.Argument(
            metavar="LEGACY_DIR", help="A checkpoint's folder or published .zip; with --all, a folder of these."
        ),
    ],
    output_dir: Annotated[
        Path, typer.Argument(metavar="OUTPUT_DIR", help="Folder to create; with --all, a folder for all results.")
    ],
    family: Annotated[
        str, typer.Option(help="What the checkpoint is: auto, roformer, gpt, sim, v2, wobert or wonezha.")
    ] = "auto",
    as_family: Annotated[
        str | None,
        typer.Option("--as", metavar="FAMILY", help="roformer: turn a BERT into a RoFormer to train further."),
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="PREFIX", help="Which checkpoint, if there are several.")
    ] = None,
    head: Annotated[
        str,
        typer.Option(
            help="What the task layer of a fine-tuned Keras model is applied to, if its file does not say: "
            "classification ([CLS]), pooler (with_pool=True), linear-pooler (with_pool='linear'), triplet (the mean), "
            "tokens (each), or none to leave it out."
        ),
    ] = "auto",
    dtype: Annotated[str, typer.Option(help="Write float32, float16, bfloat16 or float64.")] = "float32",
    max_shard_size: Annotated[
        str, typer.Option(metavar="SIZE", help="Maximum size of a weights file: 500MB, 5GB ...")
    ] = "5GB",
    all_: Annotated[
        bool, typer.Option("--all", help="Convert every checkpoint in LEGACY_DIR into OUTPUT_DIR.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing model, in one step; with --all, every one.")
    ] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Load the result and compare every tensor.")] = False,
) -> None:
    """Convert a checkpoint of the original framework into a folder that from_pretrained reads."""
    options = {
        "family": family, "as_family": as_family, "checkpoint": checkpoint, "head": head, "dtype": dtype,
        "max_shard_size": max_shard_size, "force": force, "verify": verify, "progress": True,
    }  # fmt: skip
    if all_:
        from ..conversion.folder_converter import convert_all

        summary = convert_all(legacy_dir, output_dir, **options)
        stdout.print(summary.table())
        summary.raise_for_failures()
        return
    from ..conversion.converter import convert as convert_checkpoint

    stdout.print(convert_checkpoint(legacy_dir, output_dir, **options).table())


@app.command()
def export_tf(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A saved model with its tokenizer.")],
    legacy_dir: Annotated[Path, typer.Argument(metavar="LEGACY_DIR", help="Folder to create.")],
    prefix: Annotated[str, typer.Option(help="Prefix of the checkpoint's file names.")] = "bert_model.ckpt",
    force: Annotated[bool, typer.Option("--force", help="Replace the model at LEGACY_DIR, in one step.")] = False,
) -> None:
    """Write a saved model as a checkpoint that bert4keras and TensorFlow read."""
    from ..conversion.tf_exporter import export_tf as export

    stdout.print(export(directory, legacy_dir, prefix=prefix, force=force, progress=True).table())


@app.command()
def export_onnx(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A saved model with its tokenizer.")],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to create.")],
    int8: Annotated[bool, typer.Option("--int8", help="Also write a graph with int8 weights.")] = False,
    fp16: Annotated[bool, typer.Option("--fp16", help="Also write a graph in float16.")] = False,
    texts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Texts, one a line, to compare the answers on.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the model at OUT, in one step.")] = False,
) -> None:
    """Write a saved model as a folder for ONNX Runtime and transformers.js, and compare it with PyTorch."""
    from ..serving.onnx_export import export_onnx as export

    stdout.print(export(directory, output, int8=int8, fp16=fp16, texts=texts, force=force, progress=True).table())


@app.command()
def push(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A saved model with its tokenizer.")],
    repo_id: Annotated[str, typer.Argument(metavar="REPO_ID", help="NAME/REPOSITORY on the Hub; created if missing.")],
    with_code: Annotated[
        bool, typer.Option("--with-code", help="Send the code too, for machines without this package.")
    ] = False,
    private: Annotated[
        bool, typer.Option("--private", help="Create a repository that only its owner can see.")
    ] = False,
    revision: Annotated[
        str | None, typer.Option(metavar="BRANCH", help="Publish on this branch; created if missing.")
    ] = None,
    create_pr: Annotated[
        bool, typer.Option("--create-pr", help="Open a pull request instead, and print its address.")
    ] = False,
    message: Annotated[str | None, typer.Option(metavar="TEXT", help="The commit's message, one line.")] = None,
) -> None:
    """Publish a saved model on the Hugging Face Hub, and print its address."""
    from ..hub import push as push_folder

    address = push_folder(
        directory, repo_id, with_code=with_code, private=private, revision=revision, create_pr=create_pr,
        commit_message=message, progress=True, tell=show_note,
    )  # fmt: skip
    print(address)


@app.command()
def pull(
    repo_id: Annotated[str, typer.Argument(metavar="REPO_ID", help="NAME/REPOSITORY on the Hub.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to create.")],
    revision: Annotated[str | None, typer.Option(metavar="REV", help="A branch, tag or commit.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace DIR if it holds a model.")] = False,
    local_files_only: Annotated[
        bool, typer.Option("--local-files-only", help="Use the cache, without a connection.")
    ] = False,
) -> None:
    """Fetch a repository from the Hugging Face Hub, and verify the checksum of every file."""
    from ..hub import pull as pull_repository

    pulled = pull_repository(
        repo_id, directory, revision=revision, force=force, local_files_only=local_files_only, progress=True
    )
    print(pulled)


@app.command()
def vocab(
    corpus: Annotated[
        list[Path],
        typer.Argument(
            metavar="CORPUS...", help="Text (one document per line) or JSON Lines, also as .gz, or folders of them."
        ),
    ],
    base: Annotated[
        Path, typer.Option(metavar="VOCAB_TXT", help="Character vocabulary to start from, for example Chinese BERT's.")
    ],
    output: Annotated[Path, typer.Option(metavar="VOCAB_TXT", help="File to write.")],
    size: Annotated[int, typer.Option(help="Maximum number of entries.")] = 50_000,
    min_count: Annotated[int, typer.Option(help="Minimum occurrences of a word.")] = 5,
    max_length: Annotated[int, typer.Option(help="Maximum characters of a word.")] = 16,
    field: Annotated[str, typer.Option(help="The field of JSON Lines that holds the text.")] = "text",
    num_proc: Annotated[
        int | None, typer.Option(help="Processes; by default one per core. The result is the same.")
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            callback=check_address,
            help="Count on Ray: a cluster's HOST:PORT, auto, or local for a Ray on this machine.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")] = False,
) -> None:
    """Make a word vocabulary from a character vocabulary and the most frequent words of a corpus."""
    from ..tokenization.vocabulary_maker.word_vocabulary import make_word_vocabulary

    report = make_word_vocabulary(
        corpus, base, output, size=size, min_count=min_count, max_length=max_length, field=field, num_proc=num_proc,
        ray=ray, force=force, progress=True,
    )  # fmt: skip
    stdout.print(report.table())


@app.command()
def embed(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A saved encoder with its tokenizer.")],
    texts: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXTS...",
            help="Text (a text per line), JSON Lines, CSV, also as .gz, Parquet, folders of them, or names of data sets.",
        ),
    ],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="Folder of vectors to create, or to resume.")],
    field: Annotated[str, typer.Option(help="The field or column that holds the text.")] = "text",
    id_field: Annotated[
        str | None, typer.Option(help="The one that holds its id; by default ids are file and line.")
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(help="Cut texts after so many tokens; by default where the model ends, at most 8192.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="Compute in float32, bfloat16 or float16.")] = "float32",
    vector_dtype: Annotated[str, typer.Option(help="Store float32 or float16.")] = "float32",
    keep_text: Annotated[bool, typer.Option("--keep-text", help="Store the texts beside their vectors.")] = False,
    shard_size: Annotated[int, typer.Option(help="Texts in a file, and in memory.")] = 4096,
    batch_tokens: Annotated[int, typer.Option(help="Tokens that are computed at once.")] = 16_384,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 …; by default an accelerator, if any.")] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            callback=check_address,
            help="Compute on Ray: a cluster's HOST:PORT, auto, or local for a Ray on this machine.",
        ),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes of Ray; by default one per GPU or machine.")] = None,
) -> None:
    """Write vectors of texts into Parquet files; the same command resumes where it was stopped."""
    from ..serving.vectors import embed as embed_texts

    report = embed_texts(
        directory, texts, output, field=field, id_field=id_field, max_length=max_length, dtype=dtype,
        vector_dtype=vector_dtype, keep_text=keep_text, shard_size=shard_size, batch_tokens=batch_tokens, device=device,
        ray=ray, workers=workers, progress=True,
    )  # fmt: skip
    stdout.print(report.table())


@app.command()
def rank(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A text, or a file of texts.")],
    vectors: Annotated[Path, typer.Argument(metavar="VECTORS", help="A folder that `roformer embed` wrote.")],
    top_k: Annotated[int, typer.Option(help="How many texts to show for each query.")] = 10,
    field: Annotated[str, typer.Option(help="Where a file of queries holds their text.")] = "text",
    model: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The model that made the vectors, if it is neither here nor beside them."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="What computes the vectors of the queries.")] = None,
) -> None:
    """Show the texts of a corpus that are closest to a query, by the cosines of all vectors."""
    from ..serving.vectors import rank as rank_texts

    ranking = rank_texts(query, vectors, top_k=top_k, field=field, model=model, device=device, progress=True)
    if not ranking.finished:
        show_note(f"{vectors} is not finished: texts that have no vectors yet are not ranked")
    stdout.print(ranking.table())


@app.command()
def vocab_init(
    checkpoint_dir: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT_DIR", help="A saved BERT or RoFormer, with its tokenizer.")
    ],
    new_vocab: Annotated[Path, typer.Argument(metavar="VOCAB_TXT", help="A vocabulary that `roformer vocab` made.")],
    output_dir: Annotated[Path, typer.Argument(metavar="OUTPUT_DIR", help="Folder to create.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an existing model, in one step.")] = False,
) -> None:
    """Give a checkpoint a new vocabulary; a new word's embedding is the mean of its characters'."""
    from ..conversion.word_embeddings import initialise_words

    stdout.print(initialise_words(checkpoint_dir, new_vocab, output_dir, force=force, progress=True).table())


@app.command()
def card(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A saved model.")],
) -> None:
    """Write a folder's model card, or refresh its table of facts and add the metadata that it lacks."""
    from ..model_cards import write_card

    print(write_card(directory))


@app.command()
def info(
    where: Annotated[
        str, typer.Argument(metavar="DIR_OR_REPO", help="Folder or .zip of a checkpoint, or its name on the Hub.")
    ],
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit on the Hub.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Describe a checkpoint without loading it: family, size, vocabulary, positions, where it comes from."""
    from ..conversion.inspection.info import info as checkpoint_info

    with stderr.status("looking") as status:
        found = checkpoint_info(where, revision=revision, tell=status.update)
    if as_json:
        print(found.json())
    else:
        stdout.print(found.table())


@app.command()
def page(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A saved model with its tokenizer.")],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any that is free.")] = 7860,
    max_length: Annotated[int, typer.Option(help="Longest input in tokens; the rest of a text is not read.")] = 4096,
    waiting: Annotated[int, typer.Option(help="Questions that may wait in the queue.")] = 64,
    proxy: Annotated[
        bool,
        typer.Option(
            "--proxy", help="A web server stands before the page: answer to any name, and believe X-Forwarded headers."
        ),
    ] = False,
) -> None:
    """Show a saved model in the browser, until Ctrl-C: masks, words, triplets, rankings, labels, long documents."""
    from ..serving.page.server import serve

    serve(directory, host=host, port=port, max_length=max_length, waiting=waiting, proxy=proxy, tell=stdout.out)


@plot.command()
def decay(
    output: Annotated[Path, typer.Option(metavar="PNG", help="File to write.")],
    head_dim: Annotated[int, typer.Option(help="Width of a head, even.")] = 128,
    theta: Annotated[float, typer.Option(help="Base of the frequencies.")] = 10000.0,
    longest: Annotated[int, typer.Option(help="Largest relative distance, in tokens.")] = 256,
) -> None:
    """Figure 2: how the bound on a query's product with a key falls with their distance."""
    from ..training.comparing.decay import draw_decay

    bound = draw_decay(output, head_dim=head_dim, theta=theta, longest=longest)
    (first, highest), (last, lowest) = bound[0], bound[-1]
    print(f"{output}: the bound is {highest:.2f} at distance {first}, and {lowest:.2f} at {last:,}")


def main() -> None:
    """Entry point of the `roformer` script."""
    if hasattr(sys.stdout, "reconfigure"):  # what a terminal cannot show is escaped
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except (SystemExit, KeyboardInterrupt) as ended:
        if getattr(ended, "code", 130) != 130:  # typer turns Ctrl-C into 130, once it has started
            raise
        stderr.print("roformer: interrupted; nothing was left half-written")
        sys.exit(130)
    except Exception as error:
        if os.environ.get("ROFORMER_DEBUG"):
            raise
        # Our errors, and those of the libraries that a user's input can cause, are sentences; any other at least says
        # what it was.
        stderr.print(f"roformer: {sentence_of(error)}", highlight=False, markup=False, soft_wrap=True)
        sys.exit(1)
