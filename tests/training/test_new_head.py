"""transformers' load report is not printed for the head that training makes, and stays for anything else."""

import logging

import pytest
import torch
from helpers.small_models import small_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification
from transformers.utils import logging as transformers_logging

from modeling_roformer.training import new_head


@pytest.fixture
def reports(tmp_path, monkeypatch):
    """Return a function that loads a model for a task from the folder `model`, and returns what is logged."""
    monkeypatch.chdir(tmp_path)
    small_model("RoFormerForMaskedLM").save_pretrained("model")
    messages: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record):
            messages.append(record.getMessage())

    handler = Keep()
    logger = transformers_logging.get_logger("transformers.modeling_utils")
    logger.addHandler(handler)

    def reports(task=AutoModelForSequenceClassification, **options):
        messages.clear()
        task.from_pretrained("model", **options)
        return [message for message in messages if "REPORT" in message]

    yield reports
    logger.removeHandler(handler)


def test_a_new_head_is_not_reported_in_training(reports):
    assert reports(num_labels=3)
    with new_head():
        assert not reports(num_labels=3) and not reports(AutoModelForTokenClassification)
    assert reports(num_labels=3)


def test_a_head_for_other_labels_is_not_reported_in_training(reports):
    AutoModelForSequenceClassification.from_pretrained("model", num_labels=2).save_pretrained("model")
    with new_head():
        assert not reports(num_labels=3, ignore_mismatched_sizes=True)
    assert reports(num_labels=3, ignore_mismatched_sizes=True)


def test_weights_that_are_not_of_the_head_are_reported(reports):
    weights = load_file("model/model.safetensors")
    save_file(weights | {"another.weight": torch.zeros(3)}, "model/model.safetensors", {"format": "pt"})
    with new_head():
        (report,) = reports()
    assert "another.weight" in report and "classifier" in report
    del weights["roformer.encoder.layer.1.output.dense.bias"]
    save_file(weights, "model/model.safetensors", {"format": "pt"})
    with new_head():  # without this option, it is refused
        (report,) = reports(output_loading_info=True)
    assert "roformer.encoder.layer" in report


def test_no_report_in_colours_of_a_terminal(reports, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with new_head():
        assert not reports(num_labels=3)
