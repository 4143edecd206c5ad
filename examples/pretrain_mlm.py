"""Pre-train a RoFormer on masked words, in stages: one command, which goes on where it was stopped.

    python examples/pretrain_mlm.py examples/stages/mini.yaml --corpus TEXT... --tokenizer vocab.txt --output RUN
    torchrun --nproc-per-node 8 examples/pretrain_mlm.py ...

The stages come from a YAML file; `stages/paper.yaml` are those of the paper. A corpus is text (a document a line), JSON
Lines, either compressed (.gz), folders of such, and names of data sets. docs/pre-training.md tells more.
"""

import argparse
from pathlib import Path

from modeling_roformer.training.errors import one_sentence
from modeling_roformer.training.pretraining import Corpus, pretrain
from modeling_roformer.training.stages import read_stages
from modeling_roformer.training.start import fresh_model, load_tokenizer, trained_model


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", metavar="STAGES.yaml", help="what to do, stage after stage")
    parser.add_argument("--corpus", nargs="+", required=True, help="files, folders, names of data sets")
    parser.add_argument("--field", default="text", help="where JSON Lines and data sets keep the text")
    parser.add_argument("--output", type=Path, required=True, help="folder of the run")
    parser.add_argument("--tokenizer", help="a vocab.txt or a saved model's folder; that of --from where not given")
    parser.add_argument("--from", dest="start", metavar="DIR", help="a saved RoFormer to train on; else a fresh one")
    parser.add_argument("--config", help="JSON file with fields of RoFormerConfig, for a fresh model")
    parser.add_argument(
        "--characters", action="store_true", help="a token for each character; jieba's words are masked"
    )
    parser.add_argument("--eval", nargs="+", help="held-out documents, as --corpus")
    parser.add_argument("--cache", type=Path, help="folder for the tokenized corpus; in --output where not given")
    parser.add_argument("--num-proc", type=int, help="processes that tokenize")
    parser.add_argument("--seed", type=int, default=0, help="of weights, order, masks and dropout")
    parser.add_argument("--device-tokens", type=int, default=16_384, help="most tokens that a device computes at once")
    parser.add_argument("--save-steps", type=int, default=500, help="steps between checkpoints, and evaluations")
    parser.add_argument("--logging-steps", type=int, default=50, help="steps between entries of the log")
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16 where autocast does")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    chosen = parser.parse_args()
    if chosen.tokenizer is None and chosen.start is None:
        parser.error("give --tokenizer, or --from a model that has one")
    if chosen.start is not None and chosen.config is not None:
        parser.error("--config is for a fresh model: the one at --from has its own")
    return chosen


def main() -> None:
    chosen = read_arguments()
    stages = read_stages(chosen.stages)
    options = {"word_segmentation": None} if chosen.characters else {}
    tokenizer = load_tokenizer(chosen.tokenizer or chosen.start, **options)
    if chosen.start is None:
        model = fresh_model(tokenizer, chosen.config, chosen.seed)
    else:
        model = trained_model(chosen.start, tokenizer, chosen.seed)
    cache = chosen.cache or chosen.output / "corpus"

    def corpus(sources: list[str]) -> Corpus:
        return Corpus(sources, cache, chosen.field, chosen.num_proc)

    pretrain(
        model,
        tokenizer,
        stages,
        corpus(chosen.corpus),
        chosen.output,
        held_out=corpus(chosen.eval) if chosen.eval else None,
        seed=chosen.seed,
        device_tokens=chosen.device_tokens,
        save_steps=chosen.save_steps,
        logging_steps=chosen.logging_steps,
        bf16=chosen.bf16,
        torch_compile=chosen.compile,
    )
    print(f"{chosen.output / 'model'} is the model, {chosen.output / 'curves.png'} how it learned")


if __name__ == "__main__":
    with one_sentence("pretrain_mlm"):
        main()
