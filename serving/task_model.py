"""A saved model, loaded with the head of its task, its tokenizer and its pipeline."""

from functools import cached_property
from pathlib import Path

import torch

from modeling_roformer.configuration import RoFormerConfig
from modeling_roformer.output.console import no_transformers_bar, no_warnings
from modeling_roformer.registration import registered_transformers
from modeling_roformer.rotary import longest_text
from modeling_roformer.triplet_matching import AutoModelForTripletMatching

from .errors import ServingError
from .model_folder import check_vocabulary, load_whole, named_when_unreadable

# The Hub's pipeline tag -> name of the Auto class.
AUTO_CLASSES = {
    "fill-mask": "AutoModelForMaskedLM",
    "feature-extraction": "AutoModel",
    "text-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "text-generation": "AutoModelForCausalLM",
    "translation": "AutoModelForSeq2SeqLM",
}
TRIPLETS = "sentence-similarity"  # the Hub's tag of triplet matching
MAX_LENGTH = 8192  # upper bound of the default length in tokens, so that a very long text does not exhaust memory


def auto_class(task: str, writes: bool = False):
    """Return the Auto class of a task; `writes` is for a RoFormer-Sim with its language model."""
    if task != TRIPLETS:
        return getattr(registered_transformers, AUTO_CLASSES[task])
    return registered_transformers.AutoModelForCausalLM if writes else AutoModelForTripletMatching


class TaskModel:
    """Model and tokenizer of a folder, for predictions.

    Args:
        folder: a saved model.
        task: the Hub's pipeline tag of its head.
        dtype: dtype of the model: float32, bfloat16 or float16.
        device: its device; None for an accelerator, if any.

    Raises:
        ServingError: it cannot be loaded.
    """

    def __init__(self, folder: Path, task: str, dtype: str, device: torch.device):
        self.folder, self.task = folder, task
        with named_when_unreadable(folder), no_transformers_bar(), no_warnings("transformers"):
            self.tokenizer = registered_transformers.AutoTokenizer.from_pretrained(folder)
        self.model = load_whole(auto_class(task), folder, dtype=getattr(torch, dtype)).to(device).eval()
        check_vocabulary(folder, self.tokenizer, self.model.config)
        if isinstance(self.model.config, RoFormerConfig):
            self.model.config.unpad_inputs = True

    @cached_property
    def pipeline(self) -> registered_transformers.Pipeline:
        """The pipeline of transformers for the task."""
        return registered_transformers.pipeline(
            self.task, model=self.model, tokenizer=self.tokenizer, device=self.model.device
        )

    def longest(self, wanted: int | None, option: str) -> int:
        """Return the maximum tokens of an input: `wanted`, or what model and tokenizer read, at most `MAX_LENGTH`.

        Raises:
            ServingError: the model has positions for fewer tokens than `wanted`, which `option` names.
        """
        config = self.model.config
        is_ours = isinstance(config, RoFormerConfig)
        limit = longest_text(config) if is_ours else getattr(config, "max_position_embeddings", None)
        if wanted is not None and limit is not None and wanted > limit:
            raise ServingError(f"{self.folder} has positions for {limit:,} tokens, fewer than {option}, {wanted}")
        return wanted or min(self.tokenizer.model_max_length, limit or MAX_LENGTH, MAX_LENGTH)
