"""Pre-train a RoFormer with masked language modelling, in stages.

    roformer vocab TEXT... --output vocab.txt
    python examples/pretrain_mlm.py --corpus TEXT... --tokenizer vocab.txt --output RUN
    torchrun --nproc-per-node 8 examples/pretrain_mlm.py examples/stages/paper.yaml ...

A corpus is text with a document per line, JSON Lines, CSV, TSV or Parquet, folders of them, or names of data sets.
Stages may be listed in a YAML file; `stages/paper.yaml` has those of the paper. See docs/pre-training.md.
"""

import argparse
from pathlib import Path

from modeling_roformer.training import (
    Corpus,
    ScriptParser,
    at_least,
    check_model_source,
    exit_on_error,
    fresh_model,
    held_out_scores,
    load_tokenizer,
    pretrain,
    random_seed,
    read_stages,
    trained_model,
    usual_stage,
)


def read_arguments() -> argparse.Namespace:
    parser = ScriptParser(__doc__)
    add = parser.add_argument
    add("stages", metavar="STAGES.yaml", nargs="?", help="list of stages; default: one, for the corpus")
    add("--corpus", nargs="+", required=True, help="files, folders or names of data sets")
    add("--eval", nargs="+", help="held-out documents, in the same forms as --corpus")
    add("--field", "--text", default="text", help="field or column of the text")
    add("--sample-by", choices=("line", "document"), default="line", help="what is a document in a .txt file")
    add("--output", type=Path, required=True, help="folder of the run")
    add("--resume", action="store_true", help="resume a run that was stopped")
    add("--tokenizer", help="a vocab.txt, or a saved model's folder; default: that of --from")
    add("--characters", action="store_true", help="one token per character; jieba's words are masked")
    add("--from", dest="start", metavar="DIR", help="a saved RoFormer to train further; default: a fresh model")
    add("--config", help="size of a fresh model (tiny, mini, small, medium, base), or a JSON file; default: mini")
    add("--epochs", type=at_least(1), help="without STAGES.yaml; default: 10, and at least 1,000 steps")
    add("--seed", type=random_seed, default=0, help="seed of weights, order, masks and dropout")
    add("--cache", help="folder for the tokenized corpus; default: that of datasets")
    add("--num-proc", type=at_least(0), help="number of processes that tokenize")
    add(
        "--device-tokens",
        type=at_least(1),
        help="tokens that a device computes at once; default: by a GPU's memory, or 16,384",
    )
    add("--save-steps", type=at_least(1), default=500, help="steps between checkpoints, and between evaluations")
    add("--logging-steps", type=at_least(1), default=50, help="steps between log entries")
    add("--report-to", default="none", help="where the log goes too, such as tensorboard")
    add("--bf16", action="store_true", default=None, help="bfloat16 autocast; default: on a GPU that has it")
    add("--no-bf16", dest="bf16", action="store_false", help="float32 on a GPU too")
    add("--compile", action="store_true", help="torch.compile the model")
    chosen = parser.parse_args()
    if chosen.tokenizer is None and chosen.start is None:
        parser.error("give --tokenizer, or --from with a model that has one")
    if chosen.start is not None and chosen.config is not None:
        parser.error("--config is for a fresh model: leave it out with --from")
    if chosen.stages is not None and chosen.epochs is not None:
        parser.error("--epochs is for a command without STAGES.yaml")
    return chosen


def main() -> None:
    chosen = read_arguments()
    stages = read_stages(chosen.stages) if chosen.stages else None
    if chosen.start is not None:
        check_model_source(chosen.start, needs_tokenizer=chosen.tokenizer is None)
    options = {"word_segmentation": None} if chosen.characters else {}
    tokenizer = load_tokenizer(chosen.tokenizer or chosen.start, **options)
    if chosen.start is None:
        model = fresh_model(tokenizer, chosen.config or "mini", chosen.seed)
    else:
        model = trained_model(chosen.start, tokenizer, chosen.seed)
    corpora = [
        Corpus(sources, chosen.field, chosen.sample_by, chosen.cache, chosen.num_proc) if sources else None
        for sources in (chosen.corpus, chosen.eval)
    ]
    if stages is None:
        pieces = len(corpora[0].pieces(tokenizer, 512))
        stages = [usual_stage(pieces, model.config.hidden_size, chosen.epochs)]
        print(f"{pieces:,} pieces; stage: {stages[0]}")
    pretrain(
        model,
        tokenizer,
        stages,
        corpora[0],
        chosen.output,
        held_out=corpora[1],
        seed=chosen.seed,
        device_tokens=chosen.device_tokens,
        resume=chosen.resume,
        save_steps=chosen.save_steps,
        logging_steps=chosen.logging_steps,
        report_to=chosen.report_to,
        bf16=chosen.bf16,
        torch_compile=chosen.compile,
    )
    if scores := held_out_scores(chosen.output):
        print(f"held out: loss {scores['eval_loss']:.3f}, accuracy {scores['eval_accuracy']:.1%} of the masked words")
    print(f"model: {chosen.output / 'model'}, curves: {chosen.output / 'curves.png'}")


if __name__ == "__main__":
    with exit_on_error("pretrain_mlm"):
        main()
