"""Small saved models of every kind, for the tests of exports."""

from pathlib import Path

import torch
import transformers
from helpers.paths import REPOSITORY
from helpers.small_models import TINY, small_config

import modeling_roformer
from modeling_roformer import RoFormerTokenizer

LEGACY = REPOSITORY / "tests" / "fixtures" / "legacy"


def saved(folder: Path, architecture: str, vocabulary: str = "character", **fields) -> Path:
    """The folder of a small model of any class with random weights, over a fixture's vocabulary."""
    tokenizer = RoFormerTokenizer(LEGACY / vocabulary / "vocab.txt")
    kind = getattr(modeling_roformer, architecture, None) or getattr(transformers, architecture)
    torch.manual_seed(0)
    model = kind(small_config(kind.config_class, **{"vocab_size": len(tokenizer), **TINY, **fields}))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


# Head -> the pipeline of transformers.js that runs it for the model_type roformer, and for roformer_v2, roformer_x and nezha,
# or "AutoModel" where none does; None where there is no such model. It is the table of docs/serving.md.
IN_JAVASCRIPT = {
    "Model": ("feature-extraction", "feature-extraction"),
    "ForMaskedLM": ("fill-mask", "AutoModel"),
    "ForSequenceClassification": ("text-classification", "AutoModel"),
    "ForTokenClassification": ("token-classification", "AutoModel"),
    "ForQuestionAnswering": ("question-answering", "AutoModel"),
    "ForMultipleChoice": ("AutoModel", "AutoModel"),
    "ForTripletMatching": ("AutoModel", "AutoModel"),
    "ForPreTraining": (None, "AutoModel"),
    "ForNextSentencePrediction": (None, "AutoModel"),
}
