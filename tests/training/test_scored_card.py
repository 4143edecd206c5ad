"""A score in a model's card, where the Hub looks for it and where people do."""

import pytest
import yaml
from helpers.messages import refused
from helpers.small_models import small_config
from huggingface_hub import EvalResult, ModelCard

from modeling_roformer import RoFormerForSequenceClassification
from modeling_roformer.model_cards import check_metadata
from modeling_roformer.training.finetuning.results import write_scored_card


@pytest.fixture
def folder(tmp_path):
    RoFormerForSequenceClassification(small_config()).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def score(metric, value):
    return EvalResult("text-classification", "reviews", "reviews", metric, value)


def test_scores_of_a_new_card(folder):
    write_scored_card(folder, [score("accuracy", 0.5)], "classifier")
    write_scored_card(folder, [score("macro_f1", 1 / 3), score("accuracy", 0.75)])
    text = (folder / "README.md").read_text(encoding="utf-8")
    check_metadata(text)
    metadata = yaml.safe_load(text.split("---\n")[1])
    assert metadata["pipeline_tag"] == "text-classification" and metadata["model-index"][0]["name"] == "classifier"
    results = ModelCard(text).data.eval_results
    assert {(r.task_type, r.dataset_name, r.metric_type, r.metric_value) for r in results} == {
        ("text-classification", "reviews", "accuracy", 0.75),
        ("text-classification", "reviews", "macro_f1", 1 / 3),
    }
    assert "# classifier\n" in text and "<!-- facts -->" in text
    assert "## Results\n\n- macro_f1 on reviews: 0.3333\n- accuracy on reviews: 0.75\n\n## How to use it" in text


def test_what_people_wrote_stays(folder):
    text = "---\nlicense: mit\n---\n\n# Ours\n\n## Results\n\nGood ones.\n\n## Thanks\n"
    (folder / "README.md").write_text(text, encoding="utf-8")
    write_scored_card(folder, [score("accuracy", 0.5)])
    written = (folder / "README.md").read_text(encoding="utf-8")
    assert written.endswith("# Ours\n\n## Results\n\n- accuracy on reviews: 0.5\n\nGood ones.\n\n## Thanks\n")
    assert ModelCard(written).data.license == "mit"
    (folder / "README.md").write_text("# Ours\n", encoding="utf-8")
    write_scored_card(folder, [score("accuracy", 0.5)])
    assert ModelCard.load(folder / "README.md").data.eval_results[0].metric_value == 0.5


def test_a_card_with_facts_is_written_anew(folder):
    write_scored_card(folder, [score("macro_f1", 0.5)])
    write_scored_card(folder, [score("accuracy", 0.5)], "classifier", results="As a table.", fine_tuned_from="mini")
    card = ModelCard.load(folder / "README.md")
    assert [result.metric_type for result in card.data.eval_results] == ["accuracy"] == card.data.metrics
    assert "## Results\n\nAs a table.\n\n## How to use it" in card.text and "| fine tuned from | mini |" in card.text


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_failed_run_gets_no_card(folder, value):
    with refused(ValueError, "macro_f1", "reviews", value):
        write_scored_card(folder, [score("accuracy", 0.5), score("macro_f1", value)])
    assert not (folder / "README.md").exists()
