"""The tables of figures in README.md and docs/ are printed from docs/figures/*.json, which benchmarks/ writes."""

import json
import re
import subprocess
import sys
from pathlib import Path

import figures
import keep
import pictures
import pytest
import reporting
import timing
import trained
from helpers.messages import assert_states
from helpers.paths import REPOSITORY
from rich.table import Table

from modeling_roformer.training import paired_bootstrap

BENCHMARKS = REPOSITORY / "benchmarks"
BLOCKS = [
    pytest.param(page, match, id=f"{page.name}, {match['name']}: {match['table']}")
    for page in figures.PAGES
    for match in figures.BLOCK.finditer(page.read_text(encoding="utf-8"))
]
PRINTED = [name for name, part in figures.PARTS.items() if part.script == "trained.py" and figures.read(name)]


@pytest.mark.parametrize(("page", "match"), BLOCKS)
def test_a_table_is_printed_from_its_results(page, match):
    printed = figures.render(match["name"], match["table"])
    if printed is not None:
        assert match["text"] == printed, "python benchmarks/figures.py --render"
    else:
        assert figures.NOT_KEPT in match["text"] or figures.NOT_MEASURED in match["text"]


def test_each_part_has_a_table_and_each_table_a_part():
    assert {block.values[1]["name"] for block in BLOCKS} == {*figures.PARTS, "summary"}
    for page in figures.PAGES:
        text = page.read_text(encoding="utf-8")
        assert text.count("<!-- figure ") == text.count("<!-- /figure -->") == len(figures.BLOCK.findall(text)), page


def test_the_code_and_the_options_of_each_part_exist():
    for name, part in figures.PARTS.items():
        for path in part.paths():
            assert list(REPOSITORY.glob(path.removeprefix(":(glob)"))), f"{name}: {path}"
        source = (BENCHMARKS / part.script).read_text(encoding="utf-8")
        for option in re.findall(r"--[\w-]+", part.command):
            assert f'"{option}"' in source, f"{name}: {option}"


def test_a_measured_cell_shows_the_median_and_keeps_the_quartiles(tmp_path):
    ours, theirs = timing.Measurement([1.0, 2.0, 6.0]), timing.Measurement([3.0, 2.0, 6.0])
    table = Table("", "seconds", "speed-up", "tokens/s")
    table.add_row("a|b", reporting.duration(ours), reporting.ratio(theirs, ours), reporting.rate(12, ours))
    with reporting.Figures(tmp_path / "new" / "name") as found:
        found.add("times", table)
    saved = json.loads((tmp_path / "new" / "name.json").read_text())["tables"]["times"]
    assert saved["rows"][0][1] == {"text": "2", "median": 2.0, "quartiles": [1.5, 4.0], "runs": 3}
    assert reporting.to_markdown(saved).splitlines()[2] == "| a\\|b | 2 | 1.00 × | 6 |"


def test_changed_code_is_found_by_git(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    code = tmp_path / "benchmarks" / "timing.py"
    code.parent.mkdir()
    code.write_text("first")
    someone = ["-c", "user.name=someone", "-c", "user.email=someone@example.org"]
    for words in (["init"], ["add", "."], [*someone, "commit", "-m", "first"]):
        subprocess.run(["git", "-C", tmp_path, *words], check=True, capture_output=True)
    found = {"commit": "HEAD", "command": "python benchmarks/noise.py"}
    assert figures.changed("noise", found) == ""
    code.write_text("second")
    assert figures.changed("noise", found) == "benchmarks/timing.py"
    assert "--runs" in figures.changed("noise", found | {"command": "python benchmarks/noise.py --runs 1"})


def rows_of(table):
    return [[str(cell) for cell in row] for row in zip(*(column.cells for column in table.columns), strict=True)]


def folders_of(name):
    """Return the folders of the kept runs of a part, in the order in which the shell lists them."""
    folder = figures.RUNS / name
    runs = sorted(filter(Path.is_dir, folder.iterdir()), key="{}/".format)
    return [folder] if (folder / "results.json").exists() else runs


@pytest.mark.parametrize("name", PRINTED)
def test_tables_of_training_are_made_from_its_kept_runs(name):
    kind = figures.PARTS[name].command.split()[1]
    for title, table in trained.KINDS[kind](*folders_of(name)).items():
        assert rows_of(table) == reporting.texts_of(figures.read(name)["tables"][title]), title


def test_each_run_in_the_repository_is_kept_without_long_lists():
    for path in figures.RUNS.rglob("results.json"):
        assert keep.split(json.loads(path.read_text(encoding="utf-8")))[1] == {}, path


def write_run(folder, results, **settings):
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps(results))
    found = {"settings": {"epochs": 1, "bf16": True} | settings, "data": {"model": folder.name}}
    (folder / "settings.json").write_text(json.dumps(found))
    return folder


def test_triplets_are_drawn_in_blocks_at_one_length_or_of_one_model(tmp_path):
    lengths = {"A-512": 512, "A-windows-2048": 2048, "B-2048": 2048}
    results = {name: [float(row % 3 < place) for row in range(30)] for place, name in enumerate(lengths, 1)}
    folders = []
    for name, found in results.items():
        seed = {"test": sum(found) / 30, "validation": 0.5, "rows": [*range(1, 31)], "results": found}
        folders.append(write_run(tmp_path / name, {"trained": {"0": seed}}, max_length=lengths[name]))
    blocks = [row // 10 for row in range(30)]
    (tmp_path / "blocks.json").write_text(json.dumps({"test": blocks}))
    expected = [
        [*pair, str(paired_bootstrap(*map(results.get, pair), blocks)), "1", "33.3"]
        for pair in (("A-windows-2048", "A-512"), ("B-2048", "A-windows-2048"))
    ]
    assert rows_of(trained.triplets(*folders)["comparisons"]) == expected


def test_runs_that_cannot_be_compared_are_refused(tmp_path):
    folders = [write_run(tmp_path / name, {}, epochs=0, scorer=name) for name in ("bi", "cross")]
    with pytest.raises(SystemExit) as stop:
        trained.triplets(*folders)
    assert_states(str(stop.value), "the runs differ", "scorer")


def test_pictures_are_drawn_from_kept_runs(tmp_path, monkeypatch):
    names = ["retrieval-by-length", "english-positions", "scorers"]
    monkeypatch.setattr("sys.argv", ["pictures.py", *names, "--output", str(tmp_path)])
    pictures.main()
    assert {path.stem for path in tmp_path.iterdir()} == {*names}
    sizes = {path.stem: path.stat().st_size for path in (REPOSITORY / "docs").glob("*.png")}
    assert sizes.keys() == {*pictures.PICTURES, "in-a-browser"} and max(sizes.values()) < 120_000, sizes


def test_a_part_that_fails_on_a_gpu_leaves_its_earlier_results(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "BENCHMARKS", tmp_path)
    monkeypatch.setattr(figures, "SUMMARY", ())
    parts = {name: figures.Part(f"{name}.py", (), gpu=True) for name in ("first", "second")}
    monkeypatch.setattr(figures, "PARTS", parts)
    (tmp_path / "first.py").write_text("")
    (tmp_path / "second.py").write_text("import sys; open(sys.argv[-1] + '.json', 'w').write('new')")
    output = tmp_path / "output"
    output.mkdir()
    for name in parts:
        (output / f"{name}.json").write_text("old")
    monkeypatch.setattr(sys, "argv", ["figures.py", "--gpu", "--device", "cpu", "--output", str(output)])
    with pytest.raises(SystemExit, match="failed.*: first$"):
        figures.main()
    assert {path.name: path.read_text() for path in output.iterdir()} == {"first.json": "old", "second.json": "new"}
