"""Pre-train a RoFormer with masked language modelling. The same command resumes a stopped run.

    roformer vocab TEXT... --output vocab.txt
    python examples/pretrain_mlm.py --corpus TEXT... --tokenizer vocab.txt --output RUN
    torchrun --nproc-per-node 8 examples/pretrain_mlm.py examples/stages/paper.yaml ...

A corpus is text with a document per line, JSON Lines, CSV, TSV or Parquet, folders of them, or names of data sets.
Stages may be listed in a YAML file; `stages/paper.yaml` has those of the paper. See docs/pre-training.md.
"""

import argparse

import roformer_command  # noqa: F401, first: the package then imports models where they are used
from modeling_roformer.training.errors import exit_on_error
from modeling_roformer.training.pretraining.arguments import add_arguments, require_inputs


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", metavar="STAGES.yaml", nargs="?", help="list of stages; default: one, for the corpus")
    add_arguments(parser)
    parser.add_argument("--epochs", type=int, help="without STAGES.yaml; default: 10, and at least 1,000 steps")
    parser.add_argument("--tokenizer", help="a vocab.txt, or a saved model's folder; default: that of --from")
    parser.add_argument(
        "--from", dest="start", metavar="DIR", help="a saved RoFormer to train further; default: a fresh model"
    )
    chosen = parser.parse_args()
    if chosen.tokenizer is None and chosen.start is None:
        parser.error("give --tokenizer, or --from with a model that has one")
    if chosen.start is not None and chosen.config is not None:
        parser.error("--config is for a fresh model: leave it out with --from")
    require_inputs(chosen)
    return chosen


with exit_on_error("pretrain_mlm"):
    if __name__ == "__main__":
        read_arguments()  # before the imports, which take seconds
    from modeling_roformer.training.pretraining.pretrain import (
        held_out_scores,
        pretrain,
        pretraining_options,
        tokenizer_options,
    )
    from modeling_roformer.training.pretraining.stages import read_stages
    from modeling_roformer.training.runs.models import fresh_model, load_tokenizer, trained_model


def main() -> None:
    chosen = read_arguments()
    stages = read_stages(chosen.stages) if chosen.stages else None
    tokenizer = load_tokenizer(chosen.tokenizer or chosen.start, **tokenizer_options(chosen))
    if chosen.start is None:
        model = fresh_model(tokenizer, chosen.config or "mini", chosen.seed)
    else:
        model = trained_model(chosen.start, tokenizer, chosen.seed)
    options = pretraining_options(chosen)
    pretrain(model, tokenizer, stages, output=chosen.output, epochs=chosen.epochs, tell=print, **options)
    if scores := held_out_scores(chosen.output):
        print(f"held out: loss {scores['eval_loss']:.3f}, accuracy {scores['eval_accuracy']:.1%} of the masked words")
    print(f"model: {chosen.output / 'model'}, curves: {chosen.output / 'curves.png'}")


if __name__ == "__main__":
    with exit_on_error("pretrain_mlm"):
        main()
