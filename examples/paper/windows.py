"""Fine-tune a model on triplets of long texts that it reads in separate windows: a control of long input.

    python examples/paper/windows.py MODEL --train triplets.jsonl --max-length 2048 --windows 4 --output RUN

A text is cut into at most 4 windows of 512 tokens, [CLS] and [SEP] included. Its vector is the mean over the tokens of
all its windows, as that of a text in one sequence is the mean over its tokens. Options and results are those of
examples/finetune_triplet.py. So a model whose positions end at 512 reads as much as one that reads 2,048 at once.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerBase, Trainer
from transformers.modeling_outputs import MultipleChoiceModelOutput

from modeling_roformer import RoFormerForTripletMatching
from modeling_roformer.heads import mean_over_tokens
from modeling_roformer.training import TrainingError, exit_on_error

sys.path.append(str(Path(__file__).resolve().parents[1]))
import finetune_triplet


def collate_windows(
    triplets: Sequence[dict], tokenizer: PreTrainedTokenizerBase, windows: int, length: int
) -> dict[str, torch.Tensor]:
    """Collate triplets as `TripletCollator` does, in windows: tensors of shape (triplets, 3 texts, windows, tokens)."""
    texts = [triplet[name] for triplet in triplets for name in "ABC"]
    found = tokenizer(texts, truncation=True, max_length=length, return_overflowing_tokens=True)
    rows: list[list[list[int]]] = [[] for _ in texts]
    for text, ids in zip(found["overflow_to_sample_mapping"], found["input_ids"], strict=True):
        rows[text].append(ids)
    # A text has as many windows as the others; those without tokens are padding.
    padded = [ids for of_text in rows for ids in (of_text + [[]] * windows)[:windows]]
    inputs = tokenizer.pad({"input_ids": padded}, return_tensors="pt", padding_side="right")
    batch = {name: value.unflatten(0, (len(triplets), 3, windows)) for name, value in inputs.items()}
    return batch | {"labels": torch.tensor([triplet["label"] for triplet in triplets])}


def read_windows(
    model: RoFormerForTripletMatching, input_ids, attention_mask, labels=None, num_items_in_batch=None, **kwargs
) -> MultipleChoiceModelOutput:
    """Return the loss and the logits of the bi scorer for the tensors of `collate_windows`."""
    has_token = attention_mask.any(dim=-1)  # padding windows are not computed
    hidden_states = model.base_outputs(input_ids[has_token], attention_mask[has_token]).last_hidden_state
    placed = hidden_states.new_zeros(*attention_mask.shape, hidden_states.shape[-1])
    placed[has_token] = hidden_states
    vectors = mean_over_tokens(placed.flatten(2, 3).flatten(0, 1), attention_mask.flatten(2, 3).flatten(0, 1))
    logits = model.scores(vectors.unflatten(0, attention_mask.shape[:2]))
    loss = None if labels is None else model.triplet_loss(logits, labels, num_items_in_batch)
    return MultipleChoiceModelOutput(loss=loss, logits=logits)


def make_trainer(chosen: Namespace, *arguments) -> Trainer:
    trainer = finetune_triplet.make_trainer(chosen, *arguments)
    tokenizer, length = trainer.processing_class, chosen.max_length // chosen.windows
    trainer.data_collator = partial(collate_windows, tokenizer=tokenizer, windows=chosen.windows, length=length)
    # Not a class of its own: the saved model is a RoFormerForTripletMatching, which reads one window.
    trainer.model.forward, tokenizer.model_max_length = partial(read_windows, trainer.model), length
    return trainer


def main() -> None:
    parser = finetune_triplet.make_parser(__doc__)
    parser.add_argument("--windows", type=int, default=4, help="windows that --max-length is divided into; default: 4")
    parser.set_defaults(scorer="bi")
    chosen = parser.parse_args()
    if chosen.scorer != "bi" or chosen.windows < 1 or chosen.max_length // chosen.windows < 3:
        raise TrainingError(f"--windows {chosen.windows} needs --scorer bi, and 3 tokens of --max-length per window")
    finetune_triplet.fine_tune(chosen, make_trainer)


if __name__ == "__main__":
    with exit_on_error("windows"):
        main()
