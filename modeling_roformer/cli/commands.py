"""The commands and their options.

Each command imports its modules when it runs, and torch and transformers last: they take seconds to import, and a
mistyped path should be reported at once. The package's `__init__.py` does not import them in the command.
"""

import sys
from pathlib import Path
from typing import Annotated

from rich.console import Console
from typer import Argument, Exit, Option, Typer

from modeling_roformer import __version__

app = Typer(name="roformer", no_args_is_help=True, pretty_exceptions_enable=False)
stdout = Console()
stderr = Console(stderr=True)


def show_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise Exit


def show_note(sentence: str) -> None:
    stderr.print(f"note: {sentence}", highlight=False, markup=False, soft_wrap=True)


def show_warnings(sentences: list[str]) -> None:
    for sentence in sentences:
        stderr.print(f"WARNING: {sentence}", style="bold red", highlight=False, markup=False, soft_wrap=True)


def print_json(lines: str) -> None:
    """Print JSON in UTF-8, its only encoding, whatever the terminal's is."""
    if reconfigure := getattr(sys.stdout, "reconfigure", None):
        reconfigure(encoding="utf-8", errors="backslashreplace")  # half a surrogate pair becomes JSON's escape
    sys.stdout.write(lines)


Version = Annotated[bool, Option("--version", help="Show the version.", callback=show_version, is_eager=True)]
SavedModel = Annotated[Path, Argument(metavar="DIR", help="A saved model with its tokenizer.")]
NewFolder = Annotated[Path, Argument(metavar="OUT", help="Folder to create.")]
RepoId = Annotated[str, Argument(metavar="REPO_ID", help="OWNER/NAME on the Hub.")]
Revision = Annotated[str | None, Option(metavar="REV", help="A branch, tag or commit.")]
Force = Annotated[bool, Option("--force", help="Replace an existing model, in one step.")]
PaddedVocabulary = Annotated[
    bool,
    Option("--padded-vocabulary", help="Accept embeddings with more rows than the vocabulary has entries."),
]
ForceFile = Annotated[bool, Option("--force", help="Replace an existing file.")]
TextField = Annotated[str, Option("--field", "--text", help="Field or column with the text.")]
Device = Annotated[str | None, Option(help="cpu, cuda, cuda:1 …; by default an accelerator, if any.")]
MaxLengthElsewhere = Annotated[
    int | None, Option(min=1, help="Maximum tokens of a text for other programs; by default the model's positions.")
]
HEAD_HELP = (
    "Input of a fine-tuned Keras model's task layer, if its file does not say: classification ([CLS]), pooler "
    "(with_pool=True), linear-pooler (with_pool='linear'), triplet (mean of the tokens), tokens (each), or none."
)
RayAddress = Annotated[
    str | None,
    Option(
        metavar="ADDRESS", help="Run on Ray: HOST:PORT of a cluster, auto for this machine's, or local. Extra: ray."
    ),
]


@app.callback()
def commands(
    version: Version = False,
) -> None:
    """Convert, inspect, publish, export and serve RoFormer models, make vocabularies, and search with vectors."""


@app.command()
def pull(
    repo_id: RepoId,
    directory: NewFolder,
    revision: Revision = None,
    force: Force = False,
    local_files_only: Annotated[bool, Option("--local-files-only", help="Use the cache alone.")] = False,
) -> None:
    """Download a repository from the Hugging Face Hub, and verify the checksum of every file."""
    from modeling_roformer.hub import pull as pull_repository

    pulled = pull_repository(
        repo_id, directory, revision=revision, force=force, local_files_only=local_files_only, progress=True
    )
    print(pulled)


@app.command()
def info(
    where: Annotated[str, Argument(metavar="DIR_OR_REPO", help="Folder or .zip of a checkpoint, or name on the Hub.")],
    revision: Revision = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Describe a checkpoint without loading it: family, size, vocabulary, positions, source."""
    from modeling_roformer.conversion.inspection.info import info as checkpoint_info

    with stderr.status("reading"):
        checkpoint = checkpoint_info(where, revision=revision)
    if as_json:
        print_json(checkpoint.json() + "\n")
    else:
        stdout.print(checkpoint.table())


@app.command()
def convert(
    legacy_dir: Annotated[Path, Argument(help="Folder or .zip. HDF5 needs the extra keras.")],
    output_dir: Annotated[Path, Argument(help="Folder to create.")],
    family: Annotated[str, Option(help="auto (detect), roformer, gpt, sim, v2, wobert, simbert or wonezha.")] = "auto",
    as_family: Annotated[str | None, Option("--as", help="roformer: turn a BERT into a RoFormer to train.")] = None,
    checkpoint: Annotated[str | None, Option(metavar="PREFIX", help="Checkpoint to convert, of several.")] = None,
    head: Annotated[str, Option(help=HEAD_HELP)] = "auto",
    padded_vocabulary: PaddedVocabulary = False,
    dtype: Annotated[str, Option(help="dtype of the result: float32, float16, bfloat16 or float64.")] = "float32",
    max_shard_size: Annotated[str, Option(metavar="SIZE", help="Maximum size of a weights file: 500MB, 5GB …")] = "5GB",
    force: Force = False,
    verify: Annotated[bool, Option("--verify", help="Load the result and compare every tensor.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the report, and write nothing.")] = False,
) -> None:
    """Convert a checkpoint of the original framework into a folder for from_pretrained."""
    from modeling_roformer.conversion.converter import convert as convert_checkpoint

    report = convert_checkpoint(
        legacy_dir,
        output_dir,
        family=family,
        as_family=as_family,
        checkpoint=checkpoint,
        head=head,
        padded_vocabulary=padded_vocabulary,
        dtype=dtype,
        max_shard_size=max_shard_size,
        force=force,
        verify=verify,
        dry_run=dry_run,
        progress=True,
    )
    stdout.print(report.table())
    show_warnings(report.warnings)


@app.command()
def vocab(
    corpus: Annotated[
        list[Path], Argument(help="Text (a document per line), JSON Lines, CSV, TSV, .gz of them, Parquet, or folders.")
    ],
    output: Annotated[Path, Option(metavar="VOCAB_TXT", help="File to write.")],
    base: Annotated[Path | None, Option(metavar="VOCAB_TXT", help="Vocabulary to start from.")] = None,
    size: Annotated[int, Option(help="Maximum number of entries.")] = 50_000,
    min_count: Annotated[int, Option(help="Minimum occurrences of a word.")] = 5,
    max_length: Annotated[int, Option(help="Maximum characters of a word.")] = 16,
    field: TextField = "text",
    num_proc: Annotated[int | None, Option(help="Processes, by default one per core; the result is the same.")] = None,
    force: ForceFile = False,
) -> None:
    """Make a vocabulary of the most frequent words of a corpus, from nothing or from a character vocabulary."""
    from modeling_roformer.vocabulary_maker.word_vocabulary import make_word_vocabulary

    report = make_word_vocabulary(
        corpus,
        base,
        output,
        size=size,
        min_count=min_count,
        max_length=max_length,
        field=field,
        num_proc=num_proc,
        force=force,
        progress=True,
    )
    stdout.print(report.table())


@app.command()
def vocab_init(
    checkpoint_dir: SavedModel,
    new_vocab: Annotated[Path, Argument(metavar="VOCAB_TXT", help="A vocabulary that `roformer vocab` made.")],
    output_dir: NewFolder,
    padded_vocabulary: PaddedVocabulary = False,
    force: Force = False,
) -> None:
    """Give a checkpoint a new vocabulary; a new word's embedding is the mean of its characters'."""
    from modeling_roformer.conversion.word_embeddings import initialise_words

    report = initialise_words(
        checkpoint_dir, new_vocab, output_dir, padded_vocabulary=padded_vocabulary, force=force, progress=True
    )
    stdout.print(report.table())
    show_warnings(report.warnings)


@app.command()
def predict(
    directory: SavedModel,
    files: Annotated[list[str], Argument(help="Text, JSON Lines, CSV, TSV, .gz, Parquet, folders, data sets.")],
    output: Annotated[Path, Option(metavar="FILE", help="File to write: .jsonl, .csv or .parquet.")],
    field: Annotated[str | None, Option("--field", "--text", help="Field or column with the text: text.")] = None,
    text_pair: Annotated[str | None, Option(help="Column with the second text of a pair.")] = None,
    question: Annotated[str | None, Option(help="Column with the question: question.")] = None,
    context: Annotated[str | None, Option(help="Column with the text that has the answer: context.")] = None,
    id_field: Annotated[str | None, Option(help="Field or column with the id; by default file and line.")] = None,
    sample_by: Annotated[str, Option(help="What is a row of a text file: line or document, the whole file.")] = "line",
    all_scores: Annotated[bool, Option("--all-scores", help="Add the scores of all classes.")] = False,
    top_k: Annotated[int | None, Option(min=1, help="Add this number of words for each mask.")] = None,
    label: Annotated[
        str | None, Option(help="Column with the labels, with which the predictions are compared.")
    ] = None,
    label_separator: Annotated[str | None, Option(help="What separates several labels in a text.")] = None,
    confusion: Annotated[Path | None, Option(metavar="PNG", help="Draw the confusion matrix.")] = None,
    threshold: Annotated[
        str | None, Option(metavar="NUMBER|FILE", help="Minimum score of a class, or the file of --tune.")
    ] = None,
    tune: Annotated[
        str | None, Option(metavar="FILE", help="Labelled rows that choose the threshold, and write --threshold FILE.")
    ] = None,
    max_length: Annotated[
        int | None, Option(min=1, help="Maximum tokens; by default the model's, at most 8192.")
    ] = None,
    chunk: Annotated[int | None, Option(min=1, help="Split texts into chunks of at most this many tokens.")] = None,
    overlap: Annotated[int | None, Option(min=0, help="Tokens that two neighbouring chunks share.")] = None,
    strict: Annotated[bool, Option("--strict", help="Stop at a row without a text, or one that is refused.")] = False,
    dtype: Annotated[str, Option(help="dtype of the model: float32, bfloat16 or float16.")] = "float32",
    batch_tokens: Annotated[
        int | None, Option(min=1, help="Tokens per batch; by default 4096 on a CPU, else 16384.")
    ] = None,
    device: Device = None,
    force: ForceFile = False,
) -> None:
    """Write the predictions of a model for each row of files: classes, entities, answers, triplets or masks. The same
    command resumes where it was stopped. Extra: predict."""
    from modeling_roformer.serving.prediction import predict as predict_rows

    texts = {"field": field, "text_pair": text_pair, "question": question, "context": context}
    report = predict_rows(
        directory,
        files,
        output,
        columns={name: column for name, column in texts.items() if column is not None},
        id_field=id_field,
        sample_by=sample_by,
        all_scores=all_scores,
        top_k=top_k,
        label=label,
        label_separator=label_separator,
        confusion=confusion,
        threshold=threshold,
        tune=tune,
        max_length=max_length,
        chunk=chunk,
        overlap=overlap,
        strict=strict,
        dtype=dtype,
        batch_tokens=batch_tokens,
        device=device,
        force=force,
        progress=True,
    )
    stdout.print(report.table())
    for table in report.evaluation.tables if report.evaluation else ():
        stdout.print(table, markup=False)


@app.command()
def embed(
    directory: SavedModel,
    texts: Annotated[list[str], Argument(help="Text, JSON Lines, CSV, TSV, .gz, Parquet, folders, data sets.")],
    output: Annotated[Path, Argument(metavar="OUT", help="Folder of vectors to create, or to resume.")],
    field: TextField = "text",
    id_field: Annotated[str | None, Option(help="Field or column with the id; by default file and line.")] = None,
    sample_by: Annotated[str, Option(help="What is a text in a text file: line or document, the whole file.")] = "line",
    max_length: Annotated[int | None, Option(help="Maximum tokens; by default the model's, at most 8192.")] = None,
    chunk: Annotated[int | None, Option(help="Split texts into chunks of at most this many tokens.")] = None,
    overlap: Annotated[int | None, Option(help="Tokens that two neighbouring chunks share.")] = None,
    dtype: Annotated[str, Option(help="dtype of the model: float32, bfloat16 or float16.")] = "float32",
    vector_dtype: Annotated[str, Option(help="dtype of the stored vectors: float32 or float16.")] = "float32",
    keep_text: Annotated[bool, Option("--keep-text", help="Store the texts beside their vectors.")] = False,
    words: Annotated[bool, Option("--words", help="Also index the words, for `rank --words` and `--both`.")] = False,
    word_unit: Annotated[str, Option(help="What --words counts: word, or bigram of characters.")] = "word",
    shard_size: Annotated[int, Option(min=1, help="Texts per file, and in memory.")] = 4096,
    batch_tokens: Annotated[int, Option(help="Tokens per batch.")] = 16_384,
    device: Device = None,
    ray: RayAddress = None,
    workers: Annotated[int | None, Option(help="Number of Ray workers; by default one per GPU or machine.")] = None,
) -> None:
    """Write vectors of texts into Parquet files; the same command resumes where it was stopped. Extra: embed."""
    from modeling_roformer.serving.vectors import embed as embed_texts

    report = embed_texts(
        directory,
        texts,
        output,
        field=field,
        id_field=id_field,
        sample_by=sample_by,
        max_length=max_length,
        chunk=chunk,
        overlap=overlap,
        dtype=dtype,
        vector_dtype=vector_dtype,
        keep_text=keep_text,
        words=words,
        word_unit=word_unit,
        shard_size=shard_size,
        batch_tokens=batch_tokens,
        device=device,
        ray=ray,
        workers=workers,
        progress=True,
        tell=show_note,
    )
    stdout.print(report.table())


@app.command()
def rank(
    query: Annotated[str, Argument(metavar="QUERY", help="A text, or a file of texts.")],
    vectors: Annotated[Path, Argument(metavar="VECTORS", help="A folder that `roformer embed` wrote.")],
    top_k: Annotated[int, Option(min=1, help="Number of texts to show for each query.")] = 10,
    field: TextField = "text",
    id_field: Annotated[str | None, Option(help="Field or column with the query's id.")] = None,
    words: Annotated[bool, Option("--words", help="Search by words (BM25), not by vectors.")] = False,
    both: Annotated[bool, Option("--both", help="Search by words and by vectors, and join the two lists.")] = False,
    word_unit: Annotated[str | None, Option(help="word or bigram, if the words are indexed now.")] = None,
    weight: Annotated[
        float | None, Option(min=0, max=1, help="With --both: weight of the vectors; by default tuned, or 0.5.")
    ] = None,
    tune: Annotated[
        Path | None, Option(metavar="FILE", help="With --both: queries on which to choose and store the weight.")
    ] = None,
    relevant: Annotated[
        str | None, Option(metavar="COLUMN", help="Column of --tune with the ids of relevant texts; or give --qrels.")
    ] = None,
    qrels: Annotated[
        Path | None, Option(metavar="FILE", help="Judgements in TREC's form: show the scores of the search.")
    ] = None,
    min_score: Annotated[float | None, Option(help="Leave out texts with a lower score.")] = None,
    model: Annotated[Path | None, Option(metavar="DIR", help="Model of the vectors, if it has been moved.")] = None,
    device: Device = None,
    as_json: Annotated[bool, Option("--json", help="Print a line of JSON for each query, with texts in full.")] = False,
    output: Annotated[
        Path | None, Option(metavar="FILE", help="Write this JSON to a file, or a run in TREC's form to NAME.trec.")
    ] = None,
    force: ForceFile = False,
) -> None:
    """Show the texts of a corpus that fit a query best: by vectors (exact cosines), by words, or by both.
    Extra: embed."""
    from modeling_roformer.files import write_whole
    from modeling_roformer.files.new_file import require_writable

    if output is not None:
        if vectors.resolve() in output.resolve().parents:
            raise FileExistsError(f"{output} is in the folder of the vectors, {vectors}: name a file outside it")
        require_writable(output, force, [path for path in (query, tune, qrels) if path is not None])
    from modeling_roformer.serving.vectors import options

    options.check_search(words, both, word_unit, weight, tune, relevant, qrels, query)
    from modeling_roformer.serving.vectors import evaluate, read_qrels, read_relevant
    from modeling_roformer.serving.vectors import rank as rank_texts
    from modeling_roformer.serving.vectors import tune as tune_weight

    judgements = read_qrels(qrels) if qrels is not None else {}
    shared = {"field": field, "id_field": id_field, "word_unit": word_unit, "model": model, "device": device}
    shared |= {"progress": True, "tell": show_note}
    if tune is not None:
        known = read_relevant(tune, relevant, id_field) if relevant is not None else judgements
        show_note(tune_weight(tune, vectors, known, **shared).sentence())
    by = "words" if words else "both" if both else "vectors"
    at_least = top_k if qrels is None else max(top_k, options.JUDGED)
    ranking = rank_texts(query, vectors, top_k=at_least, by=by, weight=weight, min_score=min_score, **shared)
    if not ranking.finished:
        show_note(f"{vectors} is not finished: texts without vectors are not ranked")
    evaluation = evaluate(ranking, judgements) if qrels is not None else None
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_whole(output, ranking.trec_run() if output.suffix == ".trec" else ranking.json_lines())
    if evaluation is not None:
        if evaluation.left_out:
            show_note(f"{evaluation.left_out:,} queries have no relevant text in {qrels}, and are left out")
        print_json(evaluation.json()) if as_json else stdout.print(evaluation.table())
    elif output is not None:
        print(output)
    elif as_json:
        print_json(ranking.json_lines())
    else:
        stdout.print(ranking.table())


@app.command()
def page(
    directory: SavedModel,
    host: Annotated[str, Option(help="Address to listen on; 0.0.0.0 accepts other machines.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65_535, help="Port to listen on; 0 for any free port.")] = 7860,
    max_length: Annotated[
        int, Option(min=16, help="Maximum tokens of an input; the rest of a text is not read.")
    ] = 4096,
    waiting: Annotated[int, Option(min=1, help="Maximum requests in the queue.")] = 64,
) -> None:
    """Show a saved model in the browser, until Ctrl-C: masks, words, triplets, rankings, labels, long documents.
    Extra: page."""
    from modeling_roformer.serving.page.server import serve

    serve(directory, host=host, port=port, max_length=max_length, waiting=waiting, tell=stdout.out)


@app.command()
def export_onnx(
    directory: SavedModel,
    output: NewFolder,
    int8: Annotated[bool, Option("--int8", help="Also write a graph with int8 weights.")] = False,
    fp16: Annotated[bool, Option("--fp16", help="Also write a graph in float16.")] = False,
    vectors: Annotated[bool, Option("--vectors", help="Write the encoder alone, for vectors of texts.")] = False,
    max_length: MaxLengthElsewhere = None,
    texts: Annotated[Path | None, Option(metavar="FILE", help="Texts to compare outputs on, one per line.")] = None,
    force: Force = False,
) -> None:
    """Write a saved model as a folder for ONNX Runtime and transformers.js, and compare it with PyTorch.
    Extra: export."""
    from modeling_roformer.serving.onnx_export import export_onnx as export

    report = export(
        directory,
        output,
        int8=int8,
        fp16=fp16,
        vectors=vectors,
        max_length=max_length,
        texts=texts,
        force=force,
        progress=True,
    )
    stdout.print(report.table())


@app.command()
def export_nomic_bert(
    directory: SavedModel,
    output: NewFolder,
    max_length: MaxLengthElsewhere = None,
    force: Force = False,
) -> None:
    """Write an encoder as a folder that vLLM and text-embeddings-inference serve without this package, for vectors.
    Extra: export."""
    from modeling_roformer.serving.nomic_export import export_nomic_bert as export

    export(directory, output, max_length=max_length, force=force)
    print(
        f"{output}: serve it with vllm serve {output} --runner pooling, or text-embeddings-router --model-id {output}"
    )


@app.command()
def export_tf(
    directory: SavedModel,
    legacy_dir: NewFolder,
    prefix: Annotated[str, Option(help="Prefix of the checkpoint's file names.")] = "bert_model.ckpt",
    padded_vocabulary: PaddedVocabulary = False,
    force: Force = False,
) -> None:
    """Write a saved model as a checkpoint for bert4keras and TensorFlow."""
    from modeling_roformer.conversion.tf_exporter import export_tf as export

    report = export(
        directory, legacy_dir, prefix=prefix, padded_vocabulary=padded_vocabulary, force=force, progress=True
    )
    stdout.print(report.table())
    show_warnings(report.warnings)


@app.command()
def card(directory: SavedModel) -> None:
    """Write the model card of a folder, or update its table of facts and add missing metadata."""
    from modeling_roformer.model_cards import write_card

    print(write_card(directory))


@app.command()
def bundle(
    directory: SavedModel,
    output: NewFolder,
    force: Force = False,
) -> None:
    """Copy a saved model with its code, for programs that load it with trust_remote_code, without this package."""
    from modeling_roformer.hub import bundle as bundle_folder

    bundle_folder(directory, output, force=force, tell=show_note)
    print(f"{output}: load it with trust_remote_code=True")


@app.command()
def push(
    directory: SavedModel,
    repo_id: RepoId,
    with_code: Annotated[bool, Option("--with-code", help="Also upload the code.")] = False,
    private: Annotated[bool, Option("--private", help="Create a private repository.")] = False,
    revision: Annotated[str | None, Option(metavar="BRANCH", help="Branch; created if it does not exist.")] = None,
    create_pr: Annotated[bool, Option("--create-pr", help="Open a pull request, and print its address.")] = False,
    message: Annotated[str | None, Option(metavar="TEXT", help="Message of the commit, one line.")] = None,
) -> None:
    """Publish a saved model on the Hugging Face Hub, and print its address."""
    from modeling_roformer.hub import push as push_folder

    address = push_folder(
        directory,
        repo_id,
        with_code=with_code,
        private=private,
        revision=revision,
        create_pr=create_pr,
        commit_message=message,
        progress=True,
        tell=show_note,
    )
    print(address)
