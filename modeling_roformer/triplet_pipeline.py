"""The pipeline of triplet matching: which of two texts, B or C, is closer to a third, A?"""

from collections.abc import Callable
from pathlib import Path

import torch
from transformers import Pipeline, PreTrainedTokenizerBase
from transformers.dynamic_module_utils import custom_object_save

from .triplet_matching import longest_input

TASK = "triplet-matching"


class TripletMatchingPipeline(Pipeline):
    """Pipeline that predicts which of two texts, B or C, is closer to a third, A.

    Args (of a call):
        inputs: a dict with the texts "A", "B" and "C" (other keys are ignored); or a list, generator or dataset of such
            dicts.
        max_length: truncate inputs to this many tokens, the longer text of a pair first; see `longest_input`. The model
            itself has no limit.
        batch_size: number of triplets in a batch.

    Returns:
        `{"label": "B" or "C", "score": float}` for each; the score is its probability, a softmax over both logits.

    ```python
    >>> match = pipeline("triplet-matching", model=DIR)
    >>> match({"A": "借款合同纠纷", "B": "民间借贷纠纷", "C": "离婚纠纷"})
    {'label': 'B', 'score': 0.97}
    ```
    """

    tokenizer: PreTrainedTokenizerBase

    _load_tokenizer = True
    _load_processor = _load_image_processor = _load_video_processor = _load_feature_extractor = False

    # Returns the code to save beside a model, given its folder; None in a copy of this file beside a checkpoint.
    files_with_code: Callable[[Path], dict[str, bytes]] | None = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if not hasattr(self.model, "triplet_loss"):  # also of a model that loads its class from its folder
            raise ValueError(
                f"the model is a {type(self.model).__name__}, but {TASK} needs a RoFormerForTripletMatching: train one "
                "with examples/finetune_triplet.py"
            )

    def __call__(self, inputs, **kwargs):
        if isinstance(inputs, list) and not inputs:
            return []
        return super().__call__(inputs, **kwargs)

    def _sanitize_parameters(self, max_length: int | None = None):
        return {} if max_length is None else {"max_length": max_length}, {}, {}

    def preprocess(self, triplet: dict, max_length: int | None = None) -> dict:
        scorer = self.model.config.triplet_scorer
        return {"encoded": encode_triplet(self.tokenizer, triplet, scorer, max_length)}

    def _forward(self, batch: dict) -> dict:
        # One triplet, or with a batch_size above 1 a list of them. Pad on the right, whatever the tokenizer's side, so
        # that positions do not shift.
        triplets = batch["encoded"] if isinstance(batch["encoded"], list) else [batch["encoded"]]
        flat = {name: [row for triplet in triplets for row in triplet[name]] for name in triplets[0]}
        inputs = self.tokenizer.pad(flat, return_tensors="pt", padding_side="right").to(self.device)
        outputs = self.model(**{name: value.unflatten(0, (len(triplets), -1)) for name, value in inputs.items()})
        return {"logits": outputs.logits}

    def postprocess(self, outputs: dict) -> dict:
        probabilities = outputs["logits"].double().softmax(dim=-1).squeeze(0)
        best = int(torch.argmax(probabilities))
        return {"label": "BC"[best], "score": float(probabilities[best])}

    def save_pretrained(self, save_directory: str | Path, **kwargs) -> None:
        """Save model, tokenizer and code, so that the folder loads with and without this package.

        Without it: `pipeline("triplet-matching", model=DIR, trust_remote_code=True)`.

        Args:
            save_directory: folder, made if it does not exist.
            kwargs: for `save_pretrained` of model and tokenizer; to publish, use `push_to_hub`.
        """
        directory = Path(save_directory)
        super().save_pretrained(directory, **kwargs)
        if self.files_with_code is None:
            custom_object_save(self, directory)
            return
        for name, content in self.files_with_code(directory).items():
            part = directory / f"{name}.part"
            part.write_bytes(content)
            part.replace(directory / name)


def encode_triplet(
    tokenizer: PreTrainedTokenizerBase, triplet: dict, scorer: str, max_length: int | None = None
) -> dict[str, list[list[int]]]:
    """Return token ids, segments and mask of one triplet, to be padded for `RoFormerForTripletMatching`.

    Args:
        triplet: texts under the keys "A", "B" and "C".
        scorer: "cross" for the pairs (A, B) and (A, C), truncated longest-first; "bi" for the three texts.
        max_length: see `longest_input`.

    Returns:
        Name of an input -> its two or three rows.

    Raises:
        ValueError: a text is missing, not a string, or empty.
    """
    if not isinstance(triplet, dict) or not all(isinstance(triplet.get(name), str) for name in "ABC"):
        raise ValueError('a triplet must be a dict with texts under the keys "A", "B" and "C"')
    a, b, c = (triplet[name] for name in "ABC")
    limits = {"truncation": "longest_first", "max_length": longest_input(tokenizer, max_length)}
    encoded = tokenizer([a, a], [b, c], **limits) if scorer == "cross" else tokenizer([a, b, c], **limits)
    for row, names in enumerate(("AB", "AC") if scorer == "cross" else "ABC"):
        for source, name in enumerate(names):
            if source not in encoded.sequence_ids(row):
                raise ValueError(f'text "{name}" contains no token')
    return dict(encoded)
