"""Training: what a script needs beside transformers, accelerate and datasets. Needs the extra `train`.

```python
from modeling_roformer.training import FiniteCallback, start_run
```

The scripts of `examples/` show how the parts fit together, and are there to be copied.
"""

from typing import TYPE_CHECKING

from modeling_roformer.output.lazy_names import lazy_names

if TYPE_CHECKING:
    from .comparing.curves import draw_learning_curves, draw_panels
    from .comparing.paired_bootstrap import Difference, paired_bootstrap
    from .errors import Interrupted, TrainingError, exit_on_error
    from .finetuning.answer_spans import label_windows, load_answered_questions
    from .finetuning.answers import answer_scores
    from .finetuning.class_weights import WeightedLoss, balanced_weights
    from .finetuning.evaluation import class_scores, class_table, number_scores, score_table, several_scores
    from .finetuning.folders import load_folders
    from .finetuning.glue import GLUE_TASKS, read_glue
    from .finetuning.label_kinds import LabelCollator, Labels, label_kind
    from .finetuning.labels import encode_labels, encode_numbers, load_labelled
    from .finetuning.options import PARTS, add_fine_tuning_options, best_epoch_arguments, choose_defaults
    from .finetuning.predictions import ClassPredictions, check_predictions_file, write_predictions
    from .finetuning.seeds import train_seeds
    from .finetuning.spans import SpanPredictions, tag_spans
    from .finetuning.tags import load_entities
    from .finetuning.token_labels import bio_tags, find_spans, label_tokens, print_lost, spans_of
    from .finetuning.trainers import one_bar, train_or_resume
    from .pretraining.documents import Corpus, DocumentTokenizer, files_of
    from .pretraining.masking import MaskingCollator
    from .pretraining.muon import MuonAndAdamW
    from .pretraining.near_duplicates import near_duplicates
    from .pretraining.pretrain import held_out_scores, pretrain
    from .pretraining.stages import Stage, read_stages, usual_stage
    from .retrieval.questions import load_questions, split_questions, with_negatives
    from .retrieval.search import RETRIEVAL_METRICS, PassageSearch, bm25
    from .runs.arguments import Distinct, ScriptParser, at_least, positive, random_seed
    from .runs.data import load_data, load_texts, split_by, split_missing, split_off
    from .runs.finite_callback import FiniteCallback, NotFinite
    from .runs.length import check_length, tokenize_parts, with_trained_length
    from .runs.new_head import new_head
    from .runs.run_folder import Run, last_checkpoint, start_run
    from .runs.spread import print_scores, spread
    from .runs.starting_models import (
        check_model_source,
        fine_tuning_rate,
        fresh_model,
        load_tokenizer,
        trained_model,
    )
    from .translation.averaging import average_checkpoints
    from .translation.tokenizer import train_translation_tokenizer
    from .triplets.accuracy import TripletAccuracy, triplet_accuracy
    from .triplets.baselines import TRIPLET_BASELINES, text_blind, tf_idf
    from .triplets.data import TripletCollator, load_triplets
    from .triplets.decisions import triplet_decisions, triplet_results

__all__ = [
    "GLUE_TASKS",
    "PARTS",
    "RETRIEVAL_METRICS",
    "TRIPLET_BASELINES",
    "ClassPredictions",
    "Corpus",
    "Difference",
    "Distinct",
    "DocumentTokenizer",
    "FiniteCallback",
    "Interrupted",
    "LabelCollator",
    "Labels",
    "MaskingCollator",
    "MuonAndAdamW",
    "NotFinite",
    "PassageSearch",
    "Run",
    "ScriptParser",
    "SpanPredictions",
    "Stage",
    "TrainingError",
    "TripletAccuracy",
    "TripletCollator",
    "WeightedLoss",
    "add_fine_tuning_options",
    "answer_scores",
    "at_least",
    "average_checkpoints",
    "balanced_weights",
    "best_epoch_arguments",
    "bio_tags",
    "bm25",
    "check_length",
    "check_model_source",
    "check_predictions_file",
    "choose_defaults",
    "class_scores",
    "class_table",
    "draw_learning_curves",
    "draw_panels",
    "encode_labels",
    "encode_numbers",
    "exit_on_error",
    "files_of",
    "find_spans",
    "fine_tuning_rate",
    "fresh_model",
    "held_out_scores",
    "label_kind",
    "label_tokens",
    "label_windows",
    "last_checkpoint",
    "load_answered_questions",
    "load_data",
    "load_entities",
    "load_folders",
    "load_labelled",
    "load_questions",
    "load_texts",
    "load_tokenizer",
    "load_triplets",
    "near_duplicates",
    "new_head",
    "number_scores",
    "one_bar",
    "paired_bootstrap",
    "positive",
    "pretrain",
    "print_lost",
    "print_scores",
    "random_seed",
    "read_glue",
    "read_stages",
    "score_table",
    "several_scores",
    "spans_of",
    "split_by",
    "split_missing",
    "split_off",
    "split_questions",
    "spread",
    "start_run",
    "tag_spans",
    "text_blind",
    "tf_idf",
    "tokenize_parts",
    "train_or_resume",
    "train_seeds",
    "train_translation_tokenizer",
    "trained_model",
    "triplet_accuracy",
    "triplet_decisions",
    "triplet_results",
    "usual_stage",
    "with_negatives",
    "with_trained_length",
    "write_predictions",
]
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "comparing.curves": ("draw_learning_curves", "draw_panels"),
        "comparing.paired_bootstrap": ("Difference", "paired_bootstrap"),
        "errors": ("Interrupted", "TrainingError", "exit_on_error"),
        "finetuning.answer_spans": ("label_windows", "load_answered_questions"),
        "finetuning.answers": ("answer_scores",),
        "finetuning.class_weights": ("WeightedLoss", "balanced_weights"),
        "finetuning.evaluation": ("class_scores", "class_table", "number_scores", "score_table", "several_scores"),
        "finetuning.folders": ("load_folders",),
        "finetuning.glue": ("GLUE_TASKS", "read_glue"),
        "finetuning.label_kinds": ("LabelCollator", "Labels", "label_kind"),
        "finetuning.labels": ("encode_labels", "encode_numbers", "load_labelled"),
        "finetuning.options": ("PARTS", "add_fine_tuning_options", "best_epoch_arguments", "choose_defaults"),
        "finetuning.predictions": ("ClassPredictions", "check_predictions_file", "write_predictions"),
        "finetuning.seeds": ("train_seeds",),
        "finetuning.spans": ("SpanPredictions", "tag_spans"),
        "finetuning.tags": ("load_entities",),
        "finetuning.token_labels": ("bio_tags", "find_spans", "label_tokens", "print_lost", "spans_of"),
        "finetuning.trainers": ("one_bar", "train_or_resume"),
        "pretraining.documents": ("Corpus", "DocumentTokenizer", "files_of"),
        "pretraining.masking": ("MaskingCollator",),
        "pretraining.muon": ("MuonAndAdamW",),
        "pretraining.near_duplicates": ("near_duplicates",),
        "pretraining.pretrain": ("held_out_scores", "pretrain"),
        "pretraining.stages": ("Stage", "read_stages", "usual_stage"),
        "retrieval.questions": ("load_questions", "split_questions", "with_negatives"),
        "retrieval.search": ("RETRIEVAL_METRICS", "PassageSearch", "bm25"),
        "runs.arguments": ("Distinct", "ScriptParser", "at_least", "positive", "random_seed"),
        "runs.data": ("load_data", "load_texts", "split_by", "split_missing", "split_off"),
        "runs.finite_callback": ("FiniteCallback", "NotFinite"),
        "runs.length": ("check_length", "tokenize_parts", "with_trained_length"),
        "runs.new_head": ("new_head",),
        "runs.run_folder": ("Run", "last_checkpoint", "start_run"),
        "runs.spread": ("print_scores", "spread"),
        "runs.starting_models": (
            "check_model_source",
            "fine_tuning_rate",
            "fresh_model",
            "load_tokenizer",
            "trained_model",
        ),
        "translation.averaging": ("average_checkpoints",),
        "translation.tokenizer": ("train_translation_tokenizer",),
        "triplets.accuracy": ("TripletAccuracy", "triplet_accuracy"),
        "triplets.baselines": ("TRIPLET_BASELINES", "text_blind", "tf_idf"),
        "triplets.data": ("TripletCollator", "load_triplets"),
        "triplets.decisions": ("triplet_decisions", "triplet_results"),
    },
)
