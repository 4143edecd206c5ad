"""The cards are what the Hub and its client accept, they run, and no checkpoint gets the results of another."""

import ast
import contextlib
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import version

import pytest
import torch
import transformers
import typer.main
import yaml
from helpers.messages import assert_states, refused
from helpers.pages import PAGES
from helpers.paths import REPOSITORY
from helpers.properties import max_examples
from huggingface_hub import ModelCard
from hypothesis import example, given
from hypothesis import strategies as st
from released_table import released_table
from safetensors.numpy import load_file
from typer.testing import CliRunner

import modeling_roformer
from modeling_roformer.cli.commands import app
from modeling_roformer.conversion.converter import convert
from modeling_roformer.model_cards import card_for, card_of_folder, published_checkpoints, write_card
from modeling_roformer.model_cards.cards import NOT_PUBLISHED
from modeling_roformer.model_cards.facts import START, facts_table, loads_with, read_facts
from modeling_roformer.model_cards.kinds import why_package_is_needed
from modeling_roformer.model_cards.metadata import metadata_of
from modeling_roformer.model_cards.releases import RELEASES

LEGACY = REPOSITORY / "tests" / "fixtures" / "legacy"
MASKED_LM = ["RoFormerForMaskedLM"]
KINDS = {
    "roformer": {"model_type": "roformer", "architectures": MASKED_LM},
    "v2": {"model_type": "roformer_v2", "norm_type": "rms_norm", "use_bias": False, "architectures": MASKED_LM},
    "gpt": {"model_type": "roformer", "is_decoder": True, "architectures": ["RoFormerForCausalLM"]},
    "sim": {
        "model_type": "roformer_x",
        "is_decoder": True,
        "prefix_lm": True,
        "add_pooling_layer": True,
        "pooler_activation": "linear",
        "architectures": ["RoFormerForCausalLM"],
    },
    "wobert": {"model_type": "bert", "architectures": ["BertForMaskedLM"]},
    "wonezha": {"model_type": "nezha", "architectures": ["NezhaForMaskedLM"]},
}
TASKS = {"sim": "sentence-similarity", "gpt": "text-generation"}
TABLE_4 = [(512, 256, "200k"), (1536, 256, "12.5k"), (256, 256, "120k"), (128, 512, "80k"), (1536, 256, "10k")]
# Fixture of the same kind, for the examples of a card to run on.
FIXTURES = {"roformer": "word", "gpt": "gpt", "sim": "sim", "v2": "v2", "wobert": "wobert", "wonezha": "wonezha"}


def word_level(name):
    return "-char" not in name


def released_config(name, **changes):
    layers, hidden, heads = map(int, re.fullmatch(r".*_L-(\d+)_H-(\d+)_A-(\d+)", name).groups())
    sizes = {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads}
    release = RELEASES[name]
    return {
        **KINDS[release.kind],
        **sizes,
        "intermediate_size": 4 * hidden,
        "vocab_size": release.vocab_size or 33333,
        **changes,
    }


def published(name):
    return published_checkpoints()[name].read_text(encoding="utf-8")


def python_blocks(card):
    return re.findall(r"```python\n(.*?)```", card, re.DOTALL)


def run_blocks(blocks, folder, monkeypatch):
    """Run the examples one after the other beside the folder that they name; what they print."""
    monkeypatch.chdir(folder.parent)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for block in blocks:
            exec(compile(block, str(folder), "exec"), {})
    return printed.getvalue()


def test_every_released_checkpoint_has_a_card():
    assert set(published_checkpoints()) == set(RELEASES)
    assert len(RELEASES) == 15


@pytest.mark.parametrize("name", RELEASES)
def test_published_card_has_the_metadata_of_the_hub(name):
    text = published(name)
    card = ModelCard(text)
    assert card.data.language in ("zh", ["zh"])
    assert card.data.license == "apache-2.0"
    assert card.data.library_name == "transformers"
    assert card.data.pipeline_tag == TASKS.get(RELEASES[name].kind, "fill-mask")
    assert f"{'word' if word_level(name) else 'character'}-level" in card.data.tags
    if card.data.pipeline_tag == "fill-mask":
        assert yaml.safe_load(text.split("---")[1])["mask_token"] == "[MASK]"
    for section in ("How it was trained", "Results", "How to convert it", "How to use it", "Limitations", "Citation"):
        assert text.count(f"\n## {section}\n") == 1
    assert f"{name}.zip" in text and text.count("<!-- facts -->") == 1
    assert text.count("```") % 2 == 0 and python_blocks(text)
    for block in python_blocks(text):
        ast.parse(block)
        assert f'"{name}"' in block and "import modeling_roformer" in block


@pytest.mark.parametrize("name", RELEASES)
def test_every_figure_has_its_source(name):
    """Each table of results stands in a section that links where it is from; results in the metadata are in a table."""
    text = published(name)
    results = text.partition("\n## Results\n")[2].partition("\n## ")[0]
    assert ("not published" in results.lower()) or re.search(
        r"\]\(https://(kexue\.fm|arxiv\.org|github\.com)/", results
    )
    for result in ModelCard(text).data.eval_results or ():
        assert result.source_url.startswith("https://")
        assert re.search(rf"\| {result.metric_value:.2f}( %)? \|", results), result


@pytest.mark.parametrize("name", RELEASES)
def test_the_number_of_parameters_is_that_of_the_class(name):
    """Against the model itself, built without memory."""
    release, config = RELEASES[name], released_config(name)
    if release.vocab_size is None:
        assert "parameters" not in published(name).partition("\n| | |\n")[2].partition("\n\n")[0]
        return
    config = {key: value for key, value in config.items() if key not in ("model_type", "architectures")}
    (architecture,) = KINDS[release.kind]["architectures"]
    with torch.device("meta"):
        if release.kind == "wobert":
            model = transformers.BertForMaskedLM(transformers.BertConfig(**config))
        else:
            model = getattr(modeling_roformer, architecture)(modeling_roformer.RoFormerConfig(**config))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert f"| parameters | {parameters:,}, computed from these sizes" in published(name)


@pytest.mark.parametrize("name", RELEASES)
def test_the_table_of_released_checkpoints_says_what_the_cards_say(name):
    release, card = RELEASES[name], " ".join(published(name).split())
    (row,) = [line for line in released_table().splitlines() if f"[{name}]" in line]
    assert f"](../model_cards/{name}/README.md)" in row and (REPOSITORY / "model_cards" / name / "README.md").is_file()
    (address,) = re.findall(r"\]\((https://[^)]+)\)", row)
    assert f"({address})" in card and (release.baidu is None or f"code {release.baidu[1]})" in card)
    others = set(re.findall(r"\[(junnyu/\w+)\]\(https://huggingface\.co/\1\)", card))
    assert others == ({f"junnyu/{release.hub}"} if release.hub else set()) and all(f"`{o}`" in row for o in others)
    assert (" * |" in row) == bool(release.hub and not release.loads_from_hub)
    # The page's command is the card's, and one that the command line reads.
    (command,) = re.findall(r"`(roformer convert NAME[^`]+)`", PAGES["docs/converting.md"])
    command = command.replace("NAME", name)
    assert command in card
    convert_command = typer.main.get_command(app).commands["convert"]
    read = convert_command.make_context("convert", shlex.split(command)[2:]).params
    assert (str(read["legacy_dir"]), str(read["output_dir"])) == (f"{name}.zip", name)
    assert f"`{release.architecture}`" in row


def test_training_and_results_stand_only_where_they_were_published():
    cards = {name: published(name) for name in RELEASES}
    word_base = cards.pop("chinese_roformer_L-12_H-768_A-12")
    for length, batch_size, steps in TABLE_4:
        assert f"| {length} | {batch_size} | {steps} |" in word_base
    assert "| RoFormer-1024 | 66.07 % | 69.79 % |" in word_base
    for card in cards.values():
        assert "200k" not in card and "69.79" not in card
    for name in ("chinese_roformer-gpt-char_L-12_H-768_A-12", "chinese_wonezha_L-12_H-768_A-12"):
        assert "**Not published**" in cards[name] and not ModelCard(cards[name]).data.eval_results


@pytest.mark.parametrize("name", RELEASES)
@pytest.mark.parametrize("form", ["{}", "/data/{}.zip", "data\\{}", "{}/"])
def test_the_name_of_the_archive_picks_its_card(name, form):
    facts = {"parameters": 124_096_080, "dtype": "float32", "family": None}
    card = card_for(form.format(name), released_config(name), word_level(name), **facts)
    before, after = published(name).split("<!-- facts -->")
    assert card.startswith(before) and card.endswith(after)
    assert "| parameters | 124,096,080 |" in card and "| dtype | float32 |" in card
    assert read_facts(card)["source"] == name and "family" not in read_facts(card)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 3},
        {"hidden_size": 48},
        {"num_attention_heads": 4},
        {"vocab_size": 401},
        {"architectures": ["RoFormerForSequenceClassification"]},
        {"model_type": "roformer_v2", "norm_type": "rms_norm", "prefix_lm": False},
        {"model_type": "roformer_x", "norm_type": "layer_norm", "use_bias": True, "prefix_lm": True},
        {"model_type": "mystery"},
    ],
)
@pytest.mark.parametrize("name", RELEASES)
def test_another_model_under_a_released_name_gets_the_generic_card(name, changes):
    config = released_config(name, **changes)
    if all(config[key] == released_config(name).get(key) for key in changes):
        return  # the change is what this one is
    if RELEASES[name].vocab_size is None and "vocab_size" in changes:
        return  # its size was not published
    if RELEASES[name].kind == "v2" and changes.get("norm_type") == "rms_norm":
        return
    if RELEASES[name].kind == "sim" and changes.get("prefix_lm"):
        return
    card = card_for(name, config, word_level(name))
    assert card.count(NOT_PUBLISHED) == 2  # training and results
    assert "apache-2.0" not in card and "model-index" not in card


@pytest.mark.parametrize("name", RELEASES)
def test_the_unit_of_the_vocabulary_counts(name):
    assert NOT_PUBLISHED in card_for(name, released_config(name), not word_level(name))


@pytest.mark.parametrize("name", RELEASES)
def test_a_legacy_configuration_names_no_kind_and_is_believed(name):
    config = released_config(name)
    config = {key: value for key, value in config.items() if key not in KINDS[RELEASES[name].kind]}
    assert card_for(name, config, word_level(name)).startswith(published(name).split("<!-- facts -->")[0])


@pytest.mark.parametrize(
    ("architecture", "task"),
    [
        ("RoFormerForMaskedLM", "fill-mask"),
        ("RoFormerForSequenceClassification", "text-classification"),
        ("RoFormerForTokenClassification", "token-classification"),
        ("RoFormerForQuestionAnswering", "question-answering"),
        ("RoFormerForMultipleChoice", "multiple-choice"),
        ("RoFormerForTripletMatching", "sentence-similarity"),
        ("RoFormerForCausalLM", "text-generation"),
        ("RoFormerModel", "feature-extraction"),
    ],
)
def test_generic_card_names_the_task_of_the_head_and_runs(architecture, task, tmp_path, monkeypatch):
    convert(LEGACY / "word", tmp_path / "mine")
    config = json.loads((tmp_path / "mine" / "config.json").read_text())
    head = getattr(modeling_roformer, architecture)
    kwargs = {"is_decoder": True} if task == "text-generation" else {}
    head.from_pretrained(tmp_path / "mine", **kwargs).save_pretrained(tmp_path / "mine")
    config = json.loads((tmp_path / "mine" / "config.json").read_text())
    assert config["architectures"] == [architecture]
    card = card_for("mine", config, True, license="mit", title="My model")
    data = ModelCard(card).data
    assert (data.pipeline_tag, data.license, data.language) == (task, "mit", "zh")
    assert "\n# My model\n" in card and "| vocabulary | 154 entries |" in card
    (block,) = python_blocks(card)
    printed = run_blocks([block], tmp_path / "mine", monkeypatch)
    assert printed or task == "multiple-choice"


# A release for each kind and text of examples, which differ in the name of the folder alone.
EXAMPLES = {
    (of.kind, *(block.replace(name, "") for block in python_blocks(published(name)))): name
    for name, of in RELEASES.items()
}


@pytest.mark.parametrize("name", EXAMPLES.values())
def test_the_examples_of_a_published_card_run(name, tmp_path, monkeypatch):
    """On a small checkpoint of the same kind, converted to the folder that the card names."""
    kind = RELEASES[name].kind
    convert(LEGACY / FIXTURES[kind], tmp_path / name, family=kind)
    config = json.loads((tmp_path / name / "config.json").read_text())
    assert config["architectures"] == [RELEASES[name].architecture]
    blocks = [block for block in python_blocks(published(name)) if "sentence_transformers" not in block]
    assert run_blocks(blocks, tmp_path / name, monkeypatch).strip()


def test_the_example_with_sentence_transformers_runs(tmp_path, monkeypatch):
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed; it is optional")
    name = "chinese_roformer-sim-char_L-6_H-384_A-6"
    convert(LEGACY / "sim", tmp_path / name, family="sim")
    blocks = [block for block in python_blocks(published(name)) if "sentence_transformers" in block]
    assert "tensor" in run_blocks(blocks, tmp_path / name, monkeypatch)


@max_examples(200)
@given(st.text(max_size=40), st.booleans(), st.text(max_size=20))
def test_any_name_gives_a_card_that_parses(name, words, note):
    card = card_for(name, {"num_hidden_layers": 2, "hidden_size": 8}, words, note=note)
    data = ModelCard(card).data
    assert data.library_name == "transformers" and data.license is None
    assert data.pipeline_tag == "fill-mask"
    (block,) = python_blocks(card)
    ast.parse(block)
    (row,) = [line for line in card.split("\n") if line.startswith("| note |")]
    assert len(re.findall(r"(?<!\\)\|", row)) == 3


@max_examples(200)
@given(st.dictionaries(st.text(min_size=1, max_size=9).map(lambda s: f"k{s}"), st.text(max_size=20), max_size=5))
@example({"k": "&lt; &amp;lt; <"})
@example({"k": "\\| \\\\|"})
def test_the_table_is_read_back_as_it_was_given(rows):
    """But for what a line of a table cannot hold: white space is one blank, back quotes are straight."""
    expected = {
        " ".join(key.split()).replace("`", "'"): " ".join(value.split()).replace("`", "'")
        for key, value in rows.items()
    }
    assert read_facts(f"before\n{facts_table(rows)}\n| no | fact |\n") == expected


# What was measured.


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """A converted folder that nobody may change."""
    folder = tmp_path_factory.mktemp("converted") / "model"
    convert(LEGACY / "word", folder)
    return folder


@pytest.fixture
def folder(converted, tmp_path):
    return shutil.copytree(converted, tmp_path / "model")


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_converter_fills_in_what_it_measured(converted):
    facts = read_facts((converted / "README.md").read_text(encoding="utf-8"))
    weights, shard = converted / "model.safetensors", "bert_model.ckpt.data-00000-of-00001"
    assert facts["source"] == "word" and facts["family"] == "RoFormer" and facts["dtype"] == "float32"
    assert facts["parameters"] == f"{sum(tensor.size for tensor in load_file(weights).values()):,}"
    assert facts["file model.safetensors"] == f"{weights.stat().st_size:,} bytes, SHA-256 {digest(weights)}"
    assert facts[f"source file {shard}"].endswith(f"SHA-256 {digest(LEGACY / 'word' / shard)}")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", facts["converted on"])
    for package in ("modeling-roformer", "transformers", "torch"):
        assert f"{package} {version(package)}" in facts["converted with"]


def test_every_data_file_of_the_source_is_named(tmp_path):
    convert(LEGACY / "shards", tmp_path / "out")
    facts = read_facts((tmp_path / "out" / "README.md").read_text(encoding="utf-8"))
    shards = sorted((LEGACY / "shards").glob("*.data-*"))
    assert len(shards) == 3
    for shard in shards:
        assert facts[f"source file {shard.name}"].endswith(digest(shard))


@pytest.mark.parametrize("kind", FIXTURES)
def test_the_card_of_each_kind_says_who_can_load_it_and_runs(kind, tmp_path, monkeypatch):
    convert(LEGACY / FIXTURES[kind], tmp_path / "out", family=kind)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    config, told = json.loads((tmp_path / "out" / "config.json").read_text()), read_facts(card)["loads with"]
    alone = kind in ("roformer", "wobert")
    assert (told == loads_with(config, None)) == alone and "modeling-roformer" in told
    assert f"{told}." in card
    assert ModelCard(card).data.pipeline_tag == TASKS.get(kind, "fill-mask")
    shutil.move(tmp_path / "out", tmp_path / FIXTURES[kind])
    assert run_blocks(python_blocks(card), tmp_path / FIXTURES[kind], monkeypatch).strip()


PLAIN = """
import json, sys
from transformers import AutoModel, AutoTokenizer
loaded = []
for folder in sys.argv[1:]:
    try:
        AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
        loaded.append(folder)
    except (ValueError, KeyError):
        pass
assert "modeling_roformer" not in sys.modules
print(json.dumps(loaded))
"""


@pytest.mark.slow
def test_plain_transformers_loads_or_refuses_each_kind_as_its_card_says(tmp_path):
    """In a process that has not imported this package."""
    for kind in FIXTURES:
        convert(LEGACY / FIXTURES[kind], tmp_path / kind, family=kind)
    told = set()
    for kind in FIXTURES:
        config = json.loads((tmp_path / kind / "config.json").read_text())
        facts = read_facts((tmp_path / kind / "README.md").read_text(encoding="utf-8"))
        told |= {kind} if facts["loads with"] == loads_with(config, None) else set()
    command = [sys.executable, "-c", PLAIN, *FIXTURES]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert set(json.loads(done.stdout)) == told == {"roformer", "wobert"}


def test_others_v2_is_not_said_to_load_in_plain_transformers():
    """transformers would compute it as a RoFormer with new, random biases."""
    config = released_config("chinese_roformer-v2-char_L-6_H-384_A-6", model_type="roformer")
    reason = why_package_is_needed(config)
    assert_states(reason, "roformer_v2")
    assert loads_with(config, reason) in card_for("others", config, False)


# Metadata.

BROKEN_METADATA = {
    "a: [": ["YAML"],
    "- a\n- b": ["name: value"],
    "license: mit\nlicense: mit": ["YAML", "license"],
    "a: &x [1]\nb: *x": ["YAML", "alias *x"],
}


@pytest.mark.parametrize("block", BROKEN_METADATA)
@pytest.mark.parametrize("line", ["\n", "\r\n"])
def test_metadata_that_cannot_be_read_is_named_in_one_sentence(block, line):
    with refused(ValueError, *BROKEN_METADATA[block]):
        metadata_of(f"---\n{block}\n---\n\n# Title\n".replace("\n", line))


@max_examples(100)
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=6),
        st.recursive(
            st.booleans() | st.integers() | st.text(max_size=6),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
            max_leaves=5,
        ),
        max_size=4,
    )
)
def test_metadata_is_read_as_the_client_reads_it(metadata):
    dumper = type("Dumper", (yaml.SafeDumper,), {"ignore_aliases": lambda *_: True})
    assert metadata_of(f"---\n{yaml.dump(metadata, Dumper=dumper)}\n---\n") == metadata


# roformer card


def test_a_folder_without_a_card_gets_one(folder):
    (folder / "README.md").unlink()
    result = CliRunner().invoke(app, ["card", str(folder)])
    assert result.exit_code == 0 and str(folder / "README.md") in result.stdout.replace("\n", "")
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert card == card_of_folder(folder)
    assert (folder / "README.md").stat().st_mode & 0o777 == (folder / "config.json").stat().st_mode & 0o777


def test_a_card_is_not_written_through_a_link(folder, tmp_path):
    elsewhere = tmp_path / "elsewhere.md"
    elsewhere.write_text("# Another's\n")
    (folder / "README.md").unlink()
    (folder / "README.md").symlink_to(elsewhere)
    write_card(folder)
    assert elsewhere.read_text() == "# Another's\n"
    assert "Another's" in (folder / "README.md").read_text() and START in (folder / "README.md").read_text()


def unchanged(report):
    return not (report.new or report.facts or report.fields)


def test_refreshing_measures_anew_and_keeps_what_people_wrote(folder):
    """New weights: the table follows them, and says still where the model came from."""
    path = folder / "README.md"
    old = path.read_text(encoding="utf-8")
    converted = read_facts(old)
    mine = old.replace(NOT_PUBLISHED, "On my laptop. | a | b |", 1).replace(
        "<!-- /facts -->", "| my own row | stays |\n\n<!-- /facts -->"
    )
    path.write_text(mine, encoding="utf-8")
    head = modeling_roformer.RoFormerForSequenceClassification.from_pretrained(folder)
    head.half().save_pretrained(folder, max_shard_size="20kB")
    report = write_card(folder)
    text = path.read_text(encoding="utf-8")
    facts = read_facts(text)
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1 and not report.new and "dtype" in report.facts and "facts: " in str(report)
    assert {name for name in facts if name.startswith("file ")} == {f"file {shard.name}" for shard in shards}
    for shard in shards:
        assert facts[f"file {shard.name}"].endswith(digest(shard))
    assert facts["dtype"] == "float16" and facts["architecture"] == "RoFormerForSequenceClassification"
    assert facts["parameters"] == f"{sum(tensor.size for shard in shards for tensor in load_file(shard).values()):,}"
    assert facts["my own row"] == "stays"
    for row in converted:
        if row.startswith(("source", "converted")):
            assert facts[row] == converted[row]
    cut = re.compile(r"(?s)<!-- facts -->.*<!-- /facts -->")
    assert cut.sub("", text) == cut.sub("", mine)
    assert unchanged(write_card(folder))


def test_the_card_of_a_release_stays_one_under_another_name(tmp_path, converted, monkeypatch):
    """The source of the conversion decides, not the folder's present name."""
    name = "chinese_roformer_L-6_H-384_A-6"
    config = modeling_roformer.RoFormerConfig(**released_config(name, architectures=None))
    folder = tmp_path / "renamed"
    shutil.copytree(converted, folder, ignore=shutil.ignore_patterns("model.safetensors", "README.md"))
    config.architectures = MASKED_LM
    config.save_pretrained(folder)
    (folder / "README.md").write_text(card_for(name, config.to_dict(), True), encoding="utf-8")
    (folder / "README.md").write_text(
        (folder / "README.md").read_text(encoding="utf-8").replace("license: apache-2.0\n", "")
    )
    report = write_card(folder)
    assert report.fields == ["license"]
    assert "updated" in str(report) and "added to the metadata: license" in str(report)
    assert ModelCard((folder / "README.md").read_text(encoding="utf-8")).data.license == "apache-2.0"
    assert read_facts((folder / "README.md").read_text(encoding="utf-8"))["source"] == name


@pytest.mark.parametrize("line", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "own",
    [
        "# Mine\n\nText with a | and ---\n",
        "# Mine, without a last line break",
        "---\n\n---\n# Mine\n",
        "---\nlicense: mit   # by me\ntags: [a, b]\nlanguage: [zh, en]\n---\n\n# Mine\n",
        "---\nlicense: mit\n---\n# Mine\n\n<!-- facts -->\n\nMore.\n",
        "---\nlicense: mit\n---\n# Mine\n<!-- facts -->\nold table\n<!-- /facts -->\nMore.\n",
    ],
)
def test_somebody_elses_card_keeps_every_letter(folder, own, line):
    path, own = folder / "README.md", own.replace("\n", line)
    path.write_bytes(own.encode())
    report = write_card(folder)
    card = path.read_bytes().decode()
    facts, data = read_facts(card), ModelCard(card).data
    assert facts["parameters"] and data.library_name == "transformers" and data.pipeline_tag == "fill-mask"
    assert set(report.fields) <= {"language", "library_name", "pipeline_tag", "mask_token", "tags"}
    if "license" in own:
        assert data.license == "mit"
    if "[a, b]" in own:
        assert data.tags == ["a", "b"] and data.language == ["zh", "en"] and "# by me" in card
    if line in own:
        assert "\r" not in card if line == "\n" else "\n" not in card.replace("\r\n", "")
    # All that was there is there still, in its order, but for the old table.
    kept = re.sub(r"old table\s*", "", own)
    rest = iter(card)
    assert all(letter in rest for letter in kept)
    assert unchanged(write_card(folder)) and path.read_bytes().decode() == card


BROKEN = {
    "<!-- /facts -->\n": ["<!-- facts -->", "<!-- /facts -->"],
    "<!-- facts -->\n<!-- facts -->\n<!-- /facts -->\n": ["<!-- facts -->", "<!-- /facts -->"],
    "<!-- /facts -->\n<!-- facts -->\n": ["<!-- facts -->", "<!-- /facts -->"],
    "---\na: [\n---\n": ["YAML", "line 1"],
    "---\n{license: mit}\n---\n": ["metadata", "library_name"],
}


@pytest.mark.parametrize("own", BROKEN)
def test_a_card_that_cannot_be_refreshed_is_left_alone(folder, own):
    (folder / "README.md").write_text(own)
    result = CliRunner().invoke(app, ["card", str(folder)])
    assert result.exit_code != 0
    assert_states(result.exception, folder / "README.md", *BROKEN[own])
    assert (folder / "README.md").read_text() == own
    assert not [name for name in os.listdir(folder) if name.startswith(".")]


def lose_shard(folder):
    modeling_roformer.RoFormerForMaskedLM.from_pretrained(folder).save_pretrained(folder, max_shard_size="20kB")
    next(folder.glob("model-00002-of-*.safetensors")).unlink()


@pytest.mark.parametrize(
    ("spoil", "facts"),
    [
        (lambda folder: shutil.rmtree(folder), ["{}", "folder"]),
        (lambda folder: (folder / "config.json").unlink(), ["{}", "config.json"]),
        (lambda folder: (folder / "config.json").write_text("{"), ["{}/config.json", "JSON", "column 2"]),
        (lambda folder: (folder / "config.json").write_text("[]"), ["{}/config.json", "JSON object"]),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"\0" * 20), ["{}", "weights"]),
        (lambda folder: (folder / "README.md").write_bytes(b"\xff\xfe"), ["{}/README.md", "UTF-8"]),
        (lambda folder: lose_shard(folder), ["{}", "model-00002-of-"]),
        (
            lambda folder: (folder / "model.safetensors.index.json").write_text("{}"),
            ["{}/model.safetensors.index.json", "weight_map"],
        ),
    ],
)
def test_a_folder_without_a_saved_model_is_named(folder, spoil, facts):
    spoil(folder)
    with refused(ValueError, *[fact.format(folder) for fact in facts]):
        write_card(folder)


@pytest.mark.parametrize(("fields", "is_listed"), [({}, True), ({"norm_type": "rms_norm"}, False)])
def test_the_card_says_that_the_missing_table_of_positions_is_expected(fields, is_listed):
    """transformers' own load report lists its table of positions, in red."""
    config = json.loads(modeling_roformer.RoFormerConfig(**fields).to_json_string())
    assert ("encoder.embed_positions.weight" in card_for("model", config, False)) == is_listed
