"""Pre-train a RoFormer with masked language modelling, in stages. The same command resumes a stopped run.

    python examples/pretrain_mlm.py examples/stages/mini.yaml --corpus TEXT... --tokenizer vocab.txt --output RUN
    torchrun --nproc-per-node 8 examples/pretrain_mlm.py ...

The stages are listed in a YAML file; `stages/paper.yaml` has those of the paper. A corpus is text with a document per line, JSON
Lines, either compressed (.gz), folders of them, or names of data sets. See docs/pre-training.md.
"""

import argparse

from modeling_roformer.training.errors import exit_on_error
from modeling_roformer.training.pretraining.pretrain import (
    add_arguments,
    pretrain,
    pretraining_options,
    tokenizer_options,
)
from modeling_roformer.training.pretraining.stages import read_stages
from modeling_roformer.training.runs.models import fresh_model, load_tokenizer, trained_model


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--tokenizer", help="a vocab.txt, or a saved model's folder; default: that of --from")
    parser.add_argument(
        "--from", dest="start", metavar="DIR", help="a saved RoFormer to train further; default: a fresh model"
    )
    chosen = parser.parse_args()
    if chosen.tokenizer is None and chosen.start is None:
        parser.error("give --tokenizer, or --from with a model that has one")
    if chosen.start is not None and chosen.config is not None:
        parser.error("--config is for a fresh model: leave it out with --from")
    return chosen


def main() -> None:
    chosen = read_arguments()
    stages = read_stages(chosen.stages)
    tokenizer = load_tokenizer(chosen.tokenizer or chosen.start, **tokenizer_options(chosen))
    if chosen.start is None:
        model = fresh_model(tokenizer, chosen.config, chosen.seed)
    else:
        model = trained_model(chosen.start, tokenizer, chosen.seed)
    pretrain(model, tokenizer, stages, output=chosen.output, **pretraining_options(chosen))
    print(f"model: {chosen.output / 'model'}, curves: {chosen.output / 'curves.png'}")


if __name__ == "__main__":
    with exit_on_error("pretrain_mlm"):
        main()
