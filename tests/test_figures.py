"""The tables of figures in README.md and docs/: printed from docs/figures/*.json, which benchmarks/ writes."""

import gzip
import html
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.messages import assert_states, refused
from helpers.paths import REPOSITORY
from rich.table import Table

from modeling_roformer.training import paired_bootstrap

BENCHMARKS = REPOSITORY / "benchmarks"
sys.path.append(str(BENCHMARKS))
import figures  # noqa: E402
import measure  # noqa: E402

BLOCKS = [
    pytest.param(page, match, id=f"{page.name}, {match['name']}: {match['table']}")
    for page in figures.PAGES
    for match in figures.BLOCK.finditer(page.read_text(encoding="utf-8"))
]
FOUND = {
    "name": "training",
    "command": "python benchmarks/training.py",
    "commit": "abc1234",
    "date": "2026-01-02",
    "machine": {"cpu": "Some CPU", "cores": 2, "instructions": ["avx2", "avx512_vnni"], "load": 0.0},
    "versions": {"torch": "2.13.0", "transformers": "5.23.0"},
}


@pytest.fixture
def results(tmp_path):
    """Return a folder with the results of a part."""
    table = {
        "columns": ["", "seconds"],
        "rows": [["ours", {"text": "1.5", "median": 1.5, "quartiles": [1, 2], "runs": 3}]],
    }
    (tmp_path / "training.json").write_text(json.dumps(FOUND | {"tables": {"cpu": table}}))
    return tmp_path


@pytest.mark.parametrize(("page", "match"), BLOCKS)
def test_a_table_is_printed_from_its_results(page, match):
    printed = figures.render(match["name"], match["table"])
    if printed is not None:
        assert match["text"] == printed, "python benchmarks/figures.py --render"
    else:
        assert figures.NOT_KEPT in match["text"] or figures.NOT_MEASURED in match["text"]


def test_each_part_has_a_table_and_each_table_a_part():
    named = {match["name"] for _, match in (block.values for block in BLOCKS)}
    assert named == {*figures.PARTS, "summary"}
    for page in figures.PAGES:
        text = page.read_text(encoding="utf-8")
        assert text.count("<!-- figure ") == text.count("<!-- /figure -->") == len(figures.BLOCK.findall(text)), page


def test_the_scripts_and_the_code_of_each_part_exist():
    for name, part in figures.PARTS.items():
        for path in part.paths():
            assert list(REPOSITORY.glob(path.removeprefix(":(glob)"))), f"{name}: {path}"
    for command in figures.INPUTS.values():
        for script in re.findall(r"(?:examples|benchmarks)/[\w/.-]+\.py", command):
            source = (REPOSITORY / script).read_text(encoding="utf-8")
            assert all(f'"{option}"' in source for option in re.findall(r"--[\w-]+", command)), command


def test_the_options_of_each_part_exist():
    for name, part in figures.PARTS.items():
        source = (BENCHMARKS / part.command.split()[0]).read_text(encoding="utf-8")
        assert "measure.make_parser(__doc__)" in source, name
        for option in re.findall(r"--[\w-]+", part.command):
            assert f'"{option}"' in source, f"{name}: {option}"


def test_the_rows_of_the_readme_are_those_of_the_scripts():
    for _, name, _, _, *rows in figures.SUMMARY:
        scripts = [path for path in figures.PARTS[name].paths() if path.startswith(":(glob)benchmarks/")]
        source = "".join((REPOSITORY / path.removeprefix(":(glob)")).read_text(encoding="utf-8") for path in scripts)
        for words in rows:
            assert all(f'"{word}"' in source for word in words if word[0].isalpha()), words


def test_results_replace_what_stands_between_the_comments(results):
    page = (
        "text\n<!-- figure training: cpu -->\nold\n<!-- /figure -->\n"
        "<!-- figure noise: noise -->\nold\n<!-- /figure -->\n"
    )
    lines = figures.rendered(page, results).split("\n")
    assert lines[2:5] == ["| | seconds |", "| --- | --- |", "| ours | 1.5 |"]
    assert all(word in lines[6] for word in ("Some CPU", "2 cores", "avx512_vnni", "abc1234", "2026-01-02"))
    assert lines[0] == "text" and lines[8:] == page.split("\n")[4:]
    assert figures.rendered("\n".join(lines), results).split("\n") == lines


def test_a_row_of_the_readme_shows_the_cells_that_it_names(results):
    assert figures.summary(results) is None  # other parts are missing
    tables = {}
    for _, name, table, template, ours, theirs in figures.SUMMARY:
        columns = re.findall(r"\{([^}]+)\}", "".join(template))
        words = tables.setdefault(name, {}).setdefault(table, {"columns": ["a", "b", *columns], "rows": []})
        for found, value in ((ours, "7"), (theirs, "3")):
            row = [*found, *[""] * (2 - len(found)), *[{"text": value}] * (len(words["columns"]) - 2)]
            words["rows"].append(row)
    for name, of in tables.items():
        command = f"python benchmarks/{figures.PARTS[name].script}"
        (results / f"{name}.json").write_text(json.dumps(FOUND | {"name": name, "command": command, "tables": of}))
    printed = figures.summary(results).split("\n")
    assert printed[2].endswith("| 7 tokens/s, 7 MB | 3 tokens/s, 3 MB |")
    assert len(printed) == 2 + len(figures.SUMMARY) + 3


def test_a_measured_cell_shows_the_median_and_keeps_the_quartiles(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["benchmarks/some.py", str(BENCHMARKS), "--output", "x/y", "--runs", "3"])
    ours, theirs = measure.Measurement([1.0, 2.0, 6.0]), measure.Measurement([3.0, 2.0, 6.0])
    table = Table("", "seconds", "speed-up", "tokens/s")
    table.add_row("a|b", measure.duration(ours), measure.ratio(theirs, ours), measure.rate(12, ours))
    with measure.Figures(tmp_path / "new" / "name") as found:
        found.add("times", table)
    saved = json.loads((tmp_path / "new" / "name.json").read_text())
    assert saved["name"] == "name" and saved["command"] == "python benchmarks/some.py benchmarks --runs 3"
    assert {"python", "torch", "transformers"} <= set(saved["versions"]) and saved["machine"]["cores"]
    assert saved["tables"]["times"]["columns"] == ["", "seconds", "speed-up", "tokens/s"]
    name, seconds, speed_up, rate = saved["tables"]["times"]["rows"][0]
    assert name == "a|b" and seconds == {"text": "2", "median": 2.0, "quartiles": [1.5, 4.0], "runs": 3}
    assert (speed_up["text"], speed_up["median"], rate["text"]) == ("1.00 ×", 1.0, "6")
    assert (
        (tmp_path / "new" / "name.md")
        .read_text()
        .startswith("| | seconds | speed-up | tokens/s |\n| --- | --- | --- | --- |\n| a\\|b |")
    )


def test_the_commit_is_unknown_without_git(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(measure, "ROOT", tmp_path)
    assert measure.commit() == "unknown"  # git does not take the folder
    monkeypatch.setenv("PATH", str(tmp_path))
    assert measure.commit() == "unknown"


def test_nothing_is_written_if_a_script_fails(tmp_path):
    with pytest.raises(ValueError), measure.Figures(tmp_path / "name"):
        raise ValueError
    assert not list(tmp_path.iterdir())


def test_changed_code_is_found_by_git(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    code = tmp_path / "benchmarks" / "measure.py"
    code.parent.mkdir()
    code.write_text("first")

    def git(*arguments):
        name = ["-c", "user.name=someone", "-c", "user.email=someone@example.org"]
        return subprocess.run(
            ["git", "-C", tmp_path, *name, *arguments], check=True, capture_output=True, text=True
        ).stdout

    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    found = {"commit": git("rev-parse", "--short=7", "HEAD").strip(), "command": "python benchmarks/noise.py"}
    assert figures.changed("noise", found) == ""
    code.write_text("second")
    assert figures.changed("noise", found) == "benchmarks/measure.py"
    for commit in ("abc1234+", "0" * 40, "--stat"):
        assert figures.changed("noise", found | {"commit": commit})
    assert "--runs" in figures.changed("noise", found | {"command": "python benchmarks/noise.py --runs 1"})


def folders_of(name):
    """Return the folders of the kept runs of a part."""
    folder = figures.RUNS / name
    return (
        [folder]
        if (folder / "results.json").exists()
        else sorted(filter(Path.is_dir, folder.iterdir()), key="{}/".format)
    )


KEPT = {
    name: part.command.split()[1]
    for name, part in figures.PARTS.items()
    if part.script == "trained.py" and (figures.JSON / f"{name}.json").exists()  # others are not printed yet
}


@pytest.mark.parametrize("name", KEPT)
def test_tables_of_training_are_made_from_its_kept_runs(name):
    import trained

    for title, table in trained.KINDS[KEPT[name]](*folders_of(name)).items():
        assert rows_of(table) == measure.texts_of(figures.read(name)["tables"][title]), title


def kept(folder, output):
    import keep

    keep.keep(folder, output)
    return output


def test_a_kept_run_is_small_and_is_read_like_the_run(tmp_path):
    import trained

    ranks, log = [*range(1, 400)], [{"loss": 2.5, "grad_norm": 1.0, "step": 10}]
    results = {"trained": {"1": {"ranks": ranks, "few": [0.5], "log": log}, "0": {"ranks": ranks}}, "before": {"x": 1}}
    for name in ("rotary", "learned"):  # the runs of a pre-training lie in folders of their own
        (tmp_path / "runs" / name / "stage-1").mkdir(parents=True)
        (tmp_path / "runs" / name / "settings.json").write_text('{"seed": 0}')
        (tmp_path / "runs" / name / "stage-1" / "log.json").write_text(json.dumps(log))
        (tmp_path / "runs" / name / "results.json").write_text(json.dumps(results))
    found = kept(tmp_path / "runs", tmp_path / "kept")
    paths = [path for path in sorted(found.rglob("*")) if path.is_file()]
    assert [path.relative_to(found / "learned").as_posix() for path in paths[:4]] == [
        "results.json",
        "results.json.gz",
        "settings.json",
        "stage-1/log.json",
    ]
    assert json.loads(paths[3].read_text()) == [{"loss": 2.5, "step": 10}] and "400" not in paths[0].read_text()
    read = trained.saved_in(found / "rotary")
    results["trained"]["1"]["log"] = [{"loss": 2.5, "step": 10}]
    assert read == results and list(read["trained"]) == ["1", "0"]  # tables have the order of the runs
    for path in paths:  # keeping it once more, or what is kept already, changes no byte
        for folder in (kept(tmp_path / "runs", tmp_path / "again"), kept(found, tmp_path / "twice")):
            assert (folder / path.relative_to(found)).read_bytes() == path.read_bytes()
            shutil.rmtree(folder)
    with pytest.raises(FileExistsError):
        kept(tmp_path / "runs", found)
    with pytest.raises(SystemExit) as stop:
        kept(BENCHMARKS, tmp_path / "nothing")
    assert_states(str(stop.value), BENCHMARKS, "no run")


def test_each_run_in_the_repository_was_kept_so():
    import keep

    for path in figures.RUNS.rglob("results.json"):
        assert keep.split(json.loads(path.read_text(encoding="utf-8")))[1] == {}, path


@pytest.mark.parametrize(
    "damage",
    [
        lambda old: b"",
        lambda old: old[:-9],
        lambda old: old[:-8] + b"\1" * 8,
        gzip.compress,
        lambda old: gzip.compress(b'{"x": NaN}'),
    ],
)
def test_damaged_lists_of_a_kept_run_are_named(tmp_path, damage):
    import trained

    shutil.copytree(figures.RUNS / "laboratory", tmp_path / "run")
    path = tmp_path / "run" / "results.json.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(SystemExit) as stop:
        trained.saved_in(tmp_path / "run")
    assert_states(str(stop.value), path, "damaged")


def test_lists_beside_results_of_another_form_are_refused(tmp_path):
    import trained

    shutil.copytree(figures.RUNS / "laboratory", tmp_path / "run")
    (tmp_path / "run" / "results.json").write_text(json.dumps(trained.saved_in(tmp_path / "run")))
    with pytest.raises(SystemExit) as stop:
        trained.saved_in(tmp_path / "run")
    assert_states(str(stop.value), "results.json.gz", "training")


@pytest.mark.parametrize(
    ("name", "part", "setting"),
    [
        ("multi30k", "settings", "steps"),
        ("multi30k", "data", "test"),
        ("statutes", "settings", "scorer"),
        ("statutes", "data", "train"),
        ("retrieval", "settings", "epochs"),
        ("retrieval", "data", "passages"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(tmp_path, name, part, setting):
    import trained

    for folder in folders_of(name):
        shutil.copytree(folder, tmp_path / folder.name)
    other = shutil.copytree(folder, tmp_path / "other-9")
    found = json.loads((other / "settings.json").read_text())
    found[part][setting] = 9
    (other / "settings.json").write_text(json.dumps(found))
    with pytest.raises(SystemExit) as stop:
        trained.KINDS[KEPT[name]](*tmp_path.iterdir())
    assert_states(str(stop.value), "the runs differ", setting)


@pytest.mark.parametrize("kind", ["translation", "triplets", "laboratory", "characters", "retrieval"])
@pytest.mark.parametrize("content", ["", "[]", '{"x": {"0": {}}}', '{"x": NaN}', '{"x": [null]}'])
def test_damaged_results_of_a_run_are_named(tmp_path, monkeypatch, capsys, kind, content):
    import trained

    run = tmp_path / "run" / ("none" if kind == "characters" else "")  # one of the runs of a seed
    run.mkdir(parents=True)
    settings = {"length": 4, "max_length": 4, "epochs": 1, "hard_epochs": 0, "bf16": False}
    (run / "settings.json").write_text(json.dumps({"settings": settings, "data": {}}))
    (run / "results.json").write_text(content)
    monkeypatch.setattr("sys.argv", ["trained.py", kind, str(tmp_path / "run"), "--output", str(tmp_path / "table")])
    with pytest.raises(SystemExit) as stop, trained.exit_on_error("trained"):
        trained.main()
    assert_states(capsys.readouterr().err if stop.value.code == 1 else str(stop.value), tmp_path / "run")
    assert not (tmp_path / "table.json").exists()


def write_run(folder, results, **settings):
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps(results))
    found = {"settings": {"epochs": 1, "bf16": True} | settings, "data": {"model": folder.name}}
    (folder / "settings.json").write_text(json.dumps(found))
    return folder


def rows_of(table):
    return [[str(cell) for cell in row] for row in zip(*(of.cells for of in table.columns), strict=True)]


def test_triplets_are_drawn_in_blocks_at_one_length_or_of_one_model(tmp_path):
    import trained

    lengths = {"A-512": 512, "A-windows-2048": 2048, "B-2048": 2048}
    results = {name: [float(row % 3 < place) for row in range(30)] for place, name in enumerate(lengths, 1)}
    folders = []
    for name, of in results.items():
        seed = {"test": sum(of) / 30, "validation": 0.5, "rows": [*range(1, 31)], "results": of}
        seeds = {"0": seed, "1": seed | {"test": seed["test"] - 0.1}}
        folders.append(write_run(tmp_path / name, {"trained": seeds}, max_length=lengths[name]))
    for cases in None, [row // 10 for row in range(30)]:
        if cases:
            (tmp_path / "blocks.json").write_text(json.dumps({"test": cases}))
        expected = []
        for pair in ("A-windows-2048", "A-512"), ("B-2048", "A-windows-2048"):
            expected.append([*pair, str(paired_bootstrap(*map(results.get, pair), cases)), "2", "33.3 ± 0.0"])
        assert rows_of(trained.triplets(*folders)["comparisons"]) == expected


def test_retrieval_is_drawn_in_blocks_at_one_length_or_of_one_model(tmp_path):
    import trained

    scores = {"test": dict.fromkeys(trained.RETRIEVAL_METRICS, 0.5)}
    ranks = {"A": [1, 2, 0, 4] * 5, "A-384": [2, 20, 1, 1] * 5, "B": [1, 1, 0, 0] * 5}
    whole, cut = ({"": scores | {"ranks": [rank] * 20}} for rank in (1, 2))
    folders = []
    for name, of in ranks.items():
        length = 384 if name == "A-384" else 128
        of_words = {"BM25": whole, f"BM25, first {length} tokens": whole if length == 384 else cut}
        seeds = {"trained": {"0": scores | {"ranks": of}}, "before training": {"": scores | {"ranks": [0] * 20}}}
        folders.append(write_run(tmp_path / name, of_words | seeds, max_length=length))
    cases = [number // 4 for number in range(20)]
    (tmp_path / "blocks.json").write_text(json.dumps({"test": cases}))
    scores, differences = trained.retrieval(*folders).values()
    encoders = [f"{name}, {row}" for name in ranks for row in ("trained", "before training")]
    assert [row[0] for row in rows_of(scores)] == ["BM25", "BM25, first 128 tokens of A", *encoders]
    values = {
        name: ([1 / rank if 0 < rank <= 10 else 0 for rank in of], [rank > 0 for rank in of])
        for name, of in ranks.items()
    }
    expected = []
    for pair in ("A", "A-384"), ("A", "B"):
        both = zip(*map(values.get, pair), strict=True)
        expected.append([*(f"{name}, trained" for name in pair), *(str(paired_bootstrap(*one, cases)) for one in both)])
    assert rows_of(differences) == expected


def test_word_order_is_compared_by_statute(tmp_path):
    import trained

    def made(name, results, train="t"):
        (tmp_path / name).mkdir(exist_ok=True)
        seeds = {
            seed: {"test": sum(of) / len(of), "results": of, "rows": [*range(1, len(of) + 1)]}
            for seed, of in results.items()
        }
        (tmp_path / name / "results.json").write_text(json.dumps({"trained": seeds}))
        settings = {"settings": {"epochs": 1}, "data": {"train": train}}
        (tmp_path / name / "settings.json").write_text(json.dumps(settings))
        return tmp_path / name

    statutes, right = [0] * 10 + [1] * 10 + [2] * 5, [1] * 10 + [0] * 15
    (tmp_path / "statutes.json").write_text(json.dumps({"test": statutes}))
    runs = {"rotary-1024": {"0": right, "1": [1] * 25}, "rotary-512": {"0": [1] * 25}, "none-512": {"0": [0.5] * 25}}
    accuracy, compared = trained.order(*(made(name, of, name[-4:]) for name, of in runs.items())).values()
    assert rows_of(accuracy) == [
        ["none, 512", "1", "50.0", "0%"],
        ["rotary, 512", "1", "100.0", "100%"],
        ["rotary, 1,024", "2", "70.0 ± 42.4", "100%"],
    ]
    clustered = paired_bootstrap(right, [1] * 25, statutes)
    assert rows_of(compared) == [
        ["rotary, 512", "none, 512", "+50.0 (+50.0 to +50.0)"],
        ["rotary, 1,024", "rotary, 512", str(clustered)],
    ]
    assert clustered.low == -1 and clustered.high == 0  # of three statutes, some draws have one alone
    with pytest.raises(SystemExit) as stop:
        trained.order(*(made(name, of, name[-4:]) for name, of in runs.items()), made("learned-512", runs["none-512"]))
    assert_states(str(stop.value), "the runs differ", "train")


def test_position_encodings_of_several_seeds_are_one_table(tmp_path):
    import trained

    def made(folder, seed=None, steps=100, rate=1e-3, size=64, **losses_of):
        """Write the logs of runs that were evaluated at steps 50 and 100."""
        for name, losses in losses_of.items():
            stage = tmp_path / folder / name / "stage-1"
            stage.mkdir(parents=True)
            model = {"hidden_size": size} | (
                {"position_encoding": name, "model_type": "roformer_x"} if name != "rotary" else {}
            )
            stages = [{"steps": steps, "learning_rate": rate}]
            settings = {"seed": seed, "stages": stages, "model": model, "tokenizer": "t", "arguments": {}}
            (stage.parent / "settings.json").write_text(json.dumps({"settings": settings, "data": {"corpus": "c"}}))
            log = [{"step": 50 * n, "loss": 9.0, "accuracy": 0.1} for n in (1, 2)]
            log += [{"step": 50 * n, "eval_loss": loss, "eval_accuracy": 0.5} for n, loss in enumerate(losses, 1)]
            (stage / "log.json").write_text(json.dumps(log))
        return tmp_path / folder

    def cells(table):
        return [[str(cell) for cell in row] for row in zip(*(column.cells for column in table.columns), strict=True)]

    first = made("0", 0, rotary=[4.0, 2.0], learned=[5.0, 3.0])
    second = made("1", 1, rotary=[4.0, 3.0], learned=[6.5, 4.0], none=[5.0, 5.0])
    tables = trained.positions(first, second)
    assert cells(tables["final"]) == [
        ["rotary", "2", "0.001", "2.500 ± 0.707", "50.0% ± 0.0%", "", ""],
        ["learned", "2", "0.001", "3.500 ± 0.707", "50.0% ± 0.0%", "1.000 ± 0.000", "1.750 ± 1.061 at step 50"],
        ["none", "1", "0.001", "5.000", "50.0%", "2.000", "2.000 at step 100"],
    ]
    # Linear between the evaluations: rotary has a loss of 3 at step 75, and of 4 at step 50.
    assert cells(tables["reached"])[0] == ["rotary", "learned", "2", "62 ± 18"]
    assert cells(tables["reached"])[2:4] == [["learned", "rotary", "2", "never"], ["learned", "none", "1", "80"]]
    third = made("2", 2, rotary=[4.0, 3.5], learned=[3.5, 3.5])
    assert cells(trained.positions(first, third)["reached"])[1] == ["learned", "rotary", "2", "50, never for 1"]
    for folders, words in (
        ((first, made("again", 0, rotary=[1.0, 1.0])), ("rotary", "same seed")),
        ((made("long", 1, steps=200, rotary=[1.0, 1.0]),), ("long/rotary", "not finished")),
        ((first, made("wide", 1, size=128, rotary=[1.0, 1.0])), ("model",)),
        ((first, made("fast", 1, rate=0.1, rotary=[1.0, 1.0])), ("rotary", "learning rate")),
        ((made("empty"),), ("empty", "no run")),
    ):
        with pytest.raises(SystemExit) as stop:
            trained.positions(*folders)
        assert_states(str(stop.value), *words)


def test_pictures_are_drawn_from_kept_runs(tmp_path, monkeypatch, capsys):
    import pictures

    texts, savefig = [], pictures.Figure.savefig

    def keep(figure, file):
        texts.append(" ".join(text.get_text() for text in figure.findobj(lambda of: hasattr(of, "get_text"))))
        savefig(figure, file)

    monkeypatch.setattr(pictures.Figure, "savefig", keep)
    names = ["retrieval-by-length", "english-positions", "position-encodings", "scorers"]
    monkeypatch.setattr("sys.argv", ["pictures.py", *names, "--output", str(tmp_path)])
    pictures.main()
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / f"{name}.png") for name in names]
    scores = [row[3] for row in measure.texts_of(figures.read("articles")["tables"]["scores"])]
    assert_states(texts[0], *scores, "8 articles lose")
    assert_states(texts[1], "rotary", "sinusoidal", "range of 3 seeds")


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("characters", ["seed-0/none", "seed-1/none", "seed-2/none"]),
        ("english-positions", ["seed-1/rotary"]),
        ("position-encodings", ["."]),
        ("retrieval-by-length", ["blocks.json"]),
    ],
)
def test_a_picture_without_some_of_its_runs_is_refused(tmp_path, monkeypatch, name, missing):
    import pictures

    runs = {"position-encodings": "positions", "english-positions": "english", "retrieval-by-length": "articles"}
    runs = runs.get(name, name)
    shutil.copytree(pictures.RUNS / runs, tmp_path / runs)
    for place in (tmp_path / runs / of for of in missing):
        place.unlink() if place.is_file() else shutil.rmtree(place)
    monkeypatch.setattr(pictures, "RUNS", tmp_path)
    monkeypatch.setattr("sys.argv", ["pictures.py", name, "--output", str(tmp_path)])
    with refused(pictures.TrainingError, name, tmp_path):
        pictures.main()
    assert not (tmp_path / f"{name}.png").exists()


def test_each_picture_is_drawn_by_the_script_and_small():
    import pictures

    sizes = {path.stem: path.stat().st_size for path in (REPOSITORY / "docs").glob("*.png")}
    assert sizes.keys() == {*pictures.PICTURES, "in-a-browser"} and max(sizes.values()) < 120_000, sizes


def test_status_names_every_table(capsys):
    figures.status()
    *lines, last = capsys.readouterr().out.splitlines()
    assert len(lines) == len(BLOCKS) and f"of {len(BLOCKS)} tables" in last


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r".*", "[]"),
        (r".$", ""),
        (r'"text": "1.5"', '"text": 1.5'),
        (r'"machine"', '"machines"'),
        (r'"command"', '"commands"'),
        (r'"tables": .*}', '"tables": []}'),
    ],
)
def test_results_that_cannot_be_printed_are_named(results, old, new):
    path = results / "training.json"
    assert figures.read("training", results)
    text = path.read_text()
    path.write_text(re.sub(old, new, text, count=1))
    assert path.read_text() != text
    with pytest.raises(SystemExit) as stop:
        figures.read("training", results)
    assert_states(str(stop.value), "training.json", "damaged", "ONLY=training")


def test_results_of_another_part_are_refused(results):
    (results / "training.json").rename(results / "noise.json")
    with pytest.raises(SystemExit) as stop:
        figures.read("noise", results)
    assert_states(str(stop.value), "noise.json", "training.py")
    trainer = {"command": "python benchmarks/trainer.py --sizes mini"}
    assert figures.PARTS["trainer"].is_command_of(trainer)
    assert not figures.PARTS["trainer-base"].is_command_of(trainer)


@pytest.mark.parametrize("other", ["retrieval", "characters"])
def test_results_of_another_experiment_are_refused(results, other):
    """Results of `trained.py`, with the command of the part whose name the copy has: only the name differs."""
    (results / "articles.json").write_bytes((figures.JSON / f"{other}.json").read_bytes())
    with pytest.raises(SystemExit) as stop:
        figures.render("articles", "scores", results)
    assert_states(str(stop.value), "articles.json", other)


def test_a_cell_is_one_cell_whatever_is_in_it(results):
    cells = ["a|b", "<!-- /figure -->", "two\nlines", "<b>&amp;</b>"]
    table = {"columns": cells, "rows": [cells]}
    machine = FOUND["machine"] | {"cpu": "<!-- /figure -->\n# CPU"}
    (results / "training.json").write_text(json.dumps(FOUND | {"machine": machine, "tables": {"cpu": table}}))
    page = "<!-- figure training: cpu -->\n<!-- /figure -->\nend\n"
    printed = figures.rendered(page, results)
    lines = printed.split("\n")
    assert printed.count("<!-- /figure -->") == 1 and len(lines) == 9 and lines[7:] == ["end", ""]
    shown = [html.unescape(cell.replace("\\|", "|")) for cell in re.split(r"(?<!\\)\|", lines[3])[1:-1]]
    assert [cell.strip() for cell in shown] == ["a|b", "<!-- /figure -->", "two lines", "<b>&amp;</b>"]
    assert figures.rendered(printed, results) == printed


def test_a_table_that_is_missing_in_the_results_is_named(results):
    with pytest.raises(SystemExit) as stop:
        figures.render("training", "gpu", results)
    assert_states(str(stop.value), "training.json", "gpu", "cpu")


def test_a_page_with_a_broken_comment_is_left_as_it_is(results, monkeypatch):
    page = results / "page.md"
    monkeypatch.setattr(figures, "PAGES", (page,))
    monkeypatch.setattr(figures, "JSON", results)
    block = "<!-- figure training: cpu -->\nold\n<!-- /figure -->\n"
    for text in (
        block.replace("<!-- /figure -->", "words") + block,
        block.replace("old", block),
        block + "<!-- /figure -->",
    ):
        page.write_text(text)
        with pytest.raises(SystemExit) as stop:
            figures.write_pages()
        assert_states(str(stop.value), "page.md", "<!-- /figure -->")
        assert page.read_text() == text and "words" in figures.rendered(text) + "words"


def test_results_that_cannot_be_printed_do_not_replace_those_of_before(tmp_path, monkeypatch):
    build, kept = tmp_path / "build", tmp_path / "figures"
    for folder in (build, kept):
        folder.mkdir()
    (kept / "noise.json").write_text(
        json.dumps(FOUND | {"name": "noise", "command": "python benchmarks/noise.py", "tables": {}})
    )
    before = (kept / "noise.json").read_text()
    page = tmp_path / "page.md"
    page.write_text("<!-- figure noise: noise -->\n<!-- /figure -->\n")
    for name, value in (("BUILD", build), ("JSON", kept), ("PAGES", (page,))):
        monkeypatch.setattr(figures, name, value)
    monkeypatch.setattr(sys, "argv", ["figures.py", "noise"])
    monkeypatch.setattr(figures, "run", lambda command: (build / "noise.json").write_text('{"tables": '))
    with pytest.raises(SystemExit) as stop:
        figures.main()
    assert_states(str(stop.value), str(build / "noise.json"), "damaged")
    assert (kept / "noise.json").read_text() == before


def test_status_tells_a_page_that_differs_from_its_results(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    monkeypatch.setattr(figures, "PAGES", (tmp_path / "page.md",))
    table = "<!-- figure noise: noise -->\n{}<!-- /figure -->\n"
    for text, is_same in ((figures.render("noise", "noise"), True), ("| 1 |\n", False)):
        (tmp_path / "page.md").write_text(table.format(text))
        figures.status()
        assert ("differs" not in capsys.readouterr().out) == is_same


def test_an_input_is_made_once(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(figures, "BUILD", tmp_path)
    monkeypatch.setattr(figures, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(figures, "run", ran.append)
    figures.make_input("classifier")
    assert [command.split()[0] for command in ran] == ["roformer", "python"]
    (tmp_path / "classifier").mkdir()
    figures.make_input("classifier")
    assert len(ran) == 2
    with pytest.raises(SystemExit):
        figures.make_input("retrieval")
    (tmp_path / "runs" / "retrieval").mkdir(parents=True)
    figures.make_input("retrieval")  # results of training that are kept
    assert figures.input_folder("retrieval") == tmp_path / "runs" / "retrieval"
    assert figures.input_folder("linear") == tmp_path / "linear"
