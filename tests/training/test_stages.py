"""Stage lists, right and wrong, and which piece comes when."""

import datasets
import pytest
from helpers.messages import refused
from helpers.paths import REPOSITORY

from modeling_roformer.training.errors import TrainingError
from modeling_roformer.training.pretraining.masking import StageExamples
from modeling_roformer.training.pretraining.stages import Stage, read_stages, usual_stage

GOOD = "stages:\n  - {length: 512, batch_size: 256, steps: 200_000, learning_rate: 1e-4}\n"


@pytest.fixture
def read(tmp_path):
    def read(text):
        path = tmp_path / "stages.yaml"
        path.write_text(text, encoding="utf-8")
        return read_stages(path)

    return read


def test_a_stage_list(read):
    text = "defaults: {learning_rate: 1e-4, warmup: 0}\n" + GOOD.replace("learning_rate: 1e-4", "masked: [0.3, 0.15]")
    (stage,) = read(text)
    assert stage == Stage(512, 256, 200_000, 1e-4, masked=[0.3, 0.15], warmup=0)
    assert read(GOOD) == [Stage(512, 256, 200_000, 0.0001)]


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("", ["list", "stages"]),
        ("stages: []", ["list", "stages"]),
        ("- length: 512", ["list", "stages"]),
        ("stages: [", ["line 1"]),
        (GOOD + "epochs: 3", ["epochs", "defaults", "stages"]),
        (GOOD.replace("512", "0"), ["stage 1", "length", 0, 3]),
        (GOOD.replace("512", "5.5"), ["length", 5.5, "int"]),
        (GOOD.replace("512", "true"), ["length", True, "int"]),
        (GOOD.replace("256", "many"), ["batch_size", "'many'", "int"]),
        (GOOD.replace("200_000", "0"), ["steps", 0]),
        (GOOD.replace("1e-4", "0"), ["learning_rate is 0"]),
        (GOOD.replace("1e-4", "1e300"), ["learning_rate", "from 0 to 1"]),
        (GOOD.replace("1e-4", "fast"), ["learning_rate", "'fast'", "float"]),
        (GOOD.replace("1e-4", ".nan"), ["learning_rate", "nan"]),
        (GOOD.replace("1e-4}", "1e-4, masked: 15}"), ["masked", 15, 0, 1]),
        (GOOD.replace("1e-4}", "1e-4, masked: [0.1]}"), ["masked", [0.1], [0.3, 0.15]]),
        (GOOD.replace("1e-4}", "1e-4, warmup: 100}"), ["warmup", "from 0 to 1"]),
        (GOOD.replace("1e-4}", "1e-4, schedule: x}"), ["schedule", "'x'", "linear, cosine, constant"]),
        (GOOD.replace("1e-4}", "1e-4, optimizer: sgd}"), ["optimizer", "'sgd'", "adamw, muon"]),
        (GOOD.replace("steps", "step"), ["stage 1", "step", "length", "steps"]),
        (GOOD.replace(", learning_rate: 1e-4", ""), ["stage 1", "learning_rate", "missing"]),
        (GOOD + "  - 512", ["stage 2", 512]),
        (GOOD + "defaults: 512", ["defaults"]),
    ],
)
def test_a_wrong_stage_list_is_named_on_one_line(text, facts, read):
    with refused(TrainingError, "stages.yaml", *facts):
        read(text)


def test_the_usual_stage_fits_corpus_and_model():
    assert usual_stage(640, 256) == Stage(512, 32, 1_000, 1e-3)
    assert usual_stage(6_401, 768) == Stage(512, 32, 2_001, 1.1e-4)
    assert usual_stage(33, 128, epochs=3) == Stage(512, 32, 4, 1e-3)
    with refused(ValueError, "steps", 0):  # not the default
        usual_stage(33, 128, epochs=0)


def test_the_papers_stages_are_table_4():
    stages = read_stages(REPOSITORY / "examples" / "stages" / "paper.yaml")
    assert [(stage.length, stage.batch_size, stage.steps) for stage in stages] == [
        (512, 256, 200_000), (1536, 256, 12_500), (256, 256, 120_000), (128, 512, 80_000), (1536, 256, 10_000),
        (512, 512, 30_000),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "path", sorted((REPOSITORY / "examples" / "stages").glob("*.yaml")), ids=lambda path: path.stem
)
def test_a_stage_is_printed_as_it_is_read(path, read):
    stages = read_stages(path)
    assert read("stages:\n" + "".join(f"  - {stage}\n" for stage in stages)) == stages


def test_every_epoch_has_every_piece_in_an_order_of_its_own():
    pieces = datasets.Dataset.from_dict({"piece": range(10), "input_ids": [[i] * (i + 1) for i in range(10)]})
    examples = StageExamples(pieces.with_format("numpy"), Stage(8, 4, 10, 1e-3, masked=[0.3, 0.1]), seed=3, number=1)
    assert len(examples) == 40
    rows = [examples[i] for i in range(40)]
    epochs = [[int(row["piece"]) for row in rows[i : i + 10]] for i in range(0, 40, 10)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(10))] * 4 and len(set(map(tuple, epochs))) == 4
    assert [row["epoch"] for row in rows] == [i // 10 for i in range(40)]
    assert [len(row["input_ids"]) for row in rows] == [int(row["piece"]) + 1 for row in rows]
    # The share falls evenly from the first step to the last, and is one within a step.
    assert [row["share"] for row in rows] == pytest.approx([0.3 - 0.2 * (i // 4) / 9 for i in range(40)])
    # Whoever asks, in whatever order and company.
    again = StageExamples(pieces.with_format("numpy"), examples.stage, seed=3, number=1)
    assert [int(row["piece"]) for row in again.__getitems__([25, 7, 11])] == [
        int(rows[i]["piece"]) for i in (25, 7, 11)
    ]
    for other in (4, 1), (3, 2):
        changed = StageExamples(pieces, examples.stage, *other)
        assert changed.order(0).tolist() != epochs[0]


def test_the_pieces_of_a_step_by_length():
    """A step has the same pieces as without, shortest first, whoever asks for which; steps lie across epochs."""
    lengths = [7, 3, 9, 3, 1, 8, 2, 6, 5, 4]
    pieces = datasets.Dataset.from_dict({"piece": range(10), "input_ids": [[0] * n for n in lengths]})
    stage = Stage(12, 4, 10, 1e-3, masked=[0.3, 0.1])
    as_drawn, by_length = (
        StageExamples(pieces, stage, 3, 1, by_length=by).__getitems__([*range(40)]) for by in (False, True)
    )

    def named(row):
        return row["epoch"], int(row["piece"]), row["share"]

    for first in range(0, 40, 4):
        drawn, found = as_drawn[first : first + 4], by_length[first : first + 4]
        assert sorted(map(named, found)) == sorted(map(named, drawn))
        sizes = [len(row["input_ids"]) for row in found]
        assert sizes == sorted(sizes) == [lengths[int(row["piece"])] for row in found]
    assert [*map(named, by_length)] != [*map(named, as_drawn)]
    again = StageExamples(pieces, stage, 3, 1, by_length=True)
    assert [named(row) for row in again.__getitems__([25, 7, 11])] == [named(by_length[i]) for i in (25, 7, 11)]
