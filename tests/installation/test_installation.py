"""The package is found from the clone and from elsewhere, installed or not, and an installation holds all of it."""

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from helpers.paths import REPOSITORY, ROOMS
from helpers.spaces import make_space

from modeling_roformer import __version__

NAME = "modeling_roformer"


def package_folders() -> dict[str, str]:
    """Return where each package lies in the tree: each room, and each folder in it that has Python files."""
    found = {}
    for package, room in ROOMS.items():
        for file in (REPOSITORY / room).rglob("*.py"):
            inside = file.parent.relative_to(REPOSITORY / room)
            found[".".join((package, *inside.parts))] = str(Path(room, inside))
    return found


FOLDERS = package_folders()
PACKAGES = sorted(set(FOLDERS) - {NAME})


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """Return a copy of the tree, as git would clone it."""
    clone = tmp_path_factory.mktemp("clone") / NAME
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "work", "tests", "benchmarks")
    shutil.copytree(REPOSITORY, clone, ignore=ignored)
    return clone


def ordinary_place(package: str, site_packages: Path) -> Path:
    return site_packages / package.replace(".", "/")


def install(clone: Path, target: Path, *how: str) -> Path:
    """Install the clone with pip into another folder, without a connection."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--no-compile"]
    done = subprocess.run([*pip, *offline, "--target", target, *how, clone], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="module")
def earlier(clone, tmp_path_factory) -> Path:
    """Return an installation of the clone as it was when it had one module more."""
    module = clone / "tokenization" / "removed_since.py"
    module.write_text("")
    installation = install(clone, tmp_path_factory.mktemp("earlier"))
    module.unlink()
    return installation


@pytest.fixture(scope="module")
def ordinary(clone, earlier, tmp_path_factory) -> Path:
    return install(clone, tmp_path_factory.mktemp("ordinary"))


@pytest.fixture(scope="module")
def editable(clone, tmp_path_factory) -> Path:
    return install(clone, tmp_path_factory.mktemp("editable"), "--editable")


def python(code: str, folder: Path, installation: Path) -> str:
    """Run code in a folder, with another installation of the package and this environment's dependencies."""
    add = (
        f"import site, sys; site.addsitedir({str(installation)!r}); sys.path.append({sysconfig.get_path('purelib')!r})"
    )
    # -S: no .pth of this environment, which is where its own installation is.
    done = subprocess.run([sys.executable, "-S", "-c", f"{add}\n{code}"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


# In the process of the command, the package imports no models, which take seconds.
QUICK = """
import sys
sys.modules["roformer_command"] = sys
from importlib.util import find_spec
"""


@pytest.mark.parametrize("started_in", ["the clone", "elsewhere"])
@pytest.mark.parametrize("installed", ["ordinary", "editable", "not at all"])
def test_every_folder_is_found_and_no_other_folder_of_the_clone(installed, started_in, clone, tmp_path, request):
    folder = {"the clone": clone, "elsewhere": tmp_path}[started_in]
    installation = clone if installed == "not at all" else request.getfixturevalue(installed)  # clone: as PYTHONPATH
    others = [f"{NAME}.{name}" for name in ("tests", "docs", "benchmarks", "examples", NAME)]
    for name in ("tests", "benchmarks"):  # which the fixture leaves out
        (clone / name).mkdir(exist_ok=True)
    code = f"{QUICK}for package in {PACKAGES}: print(find_spec(package).origin)\nprint(*map(find_spec, {others}))"
    *found, importable = python(code, folder, installation).splitlines()
    assert importable.split() == ["None"] * len(others)
    if installed == "ordinary" and started_in == "elsewhere":
        expected = [ordinary_place(package, installation) for package in PACKAGES]
    else:
        expected = [clone / FOLDERS[package] for package in PACKAGES]
    assert [Path(origin).parent for origin in found] == expected


def test_a_module_that_was_removed_does_not_come_back(clone, earlier, ordinary):
    """Builds leave nothing in the clone that the next one would take."""
    places = [installation / NAME / "tokenization" / "removed_since.py" for installation in (earlier, ordinary)]
    assert [place.exists() for place in places] == [True, False]
    assert (ordinary / NAME / "tokenization" / "tokenizer.py").exists()
    assert not (clone / "build").exists()


def test_an_installation_never_looks_beside_itself(ordinary, tmp_path):
    """Whatever other packages put there."""
    site = shutil.copytree(ordinary, tmp_path / "site")
    shutil.copytree(REPOSITORY / "tokenization", site / "tokenization")
    shutil.copy(REPOSITORY / "setup.cfg", site)
    found = python(f"{QUICK}import {NAME}\nprint(*{NAME}.__path__)", tmp_path, site)
    assert found == f"{site / NAME}\n"


@pytest.mark.slow
def test_models_load_from_the_root_of_the_clone_after_an_ordinary_installation(clone, ordinary):
    code = f"import {NAME} as m, transformers\nprint(transformers.AutoModel.from_config(m.RoFormerConfig()).__module__)"
    assert python(code, clone, ordinary).split() == ["modeling_roformer.model"]


@pytest.mark.slow
def test_a_space_carries_the_package_and_nothing_of_this_machine(tmp_path):
    space = make_space(tmp_path)
    assert {"app.py", "requirements.txt", "README.md", NAME} <= {path.name for path in space.iterdir()}
    assert {path.name for path in (REPOSITORY / "tokenization").glob("*.py")} <= {
        path.name for path in (space / NAME / "tokenization").iterdir()
    }
    code = f"import sys; sys.path.insert(0, {str(space)!r})\nimport {NAME}.cli.commands\n"
    found = python(f"{QUICK}{code}print({NAME}.__file__, {NAME}.__version__)", tmp_path, tmp_path / "nothing")
    assert found == f"{space / NAME / '__init__.py'} {__version__}\n"
    for file in space.rglob("*"):
        assert not file.is_file() or str(tmp_path).encode() not in file.read_bytes() or file.suffix == ".pyc", file


@pytest.mark.parametrize("target", ["demo", "test"])
def test_make_installs_its_own_tree_again(clone, ordinary, editable, target):
    """Over `pip install .`, and where the clone lies elsewhere than when it was installed."""

    def what_it_would_run() -> str:
        make = ["make", "--dry-run", target]
        return subprocess.run(make, cwd=clone, capture_output=True, text=True, check=True).stdout

    assert "pip install" in what_it_would_run()
    try:
        for installation, again in (editable, False), (ordinary, True):
            venv.create(clone / ".venv", clear=True)
            site_packages = clone / ".venv" / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
            shutil.copytree(installation, site_packages, dirs_exist_ok=True)
            for stamp in ("package", "tools"):
                (clone / ".venv" / stamp).touch()
            assert ("pip install" in what_it_would_run()) == again
    finally:
        shutil.rmtree(clone / ".venv")


@pytest.mark.parametrize(("environment", "by_uv"), [({}, False), ({"UV_TORCH_BACKEND": "cpu"}, True)])
def test_make_takes_torch_for_cpus_on_request(tmp_path, monkeypatch, environment, by_uv):
    """By uv, whose variable it is: pip has no word for it but the address of another index."""
    shutil.copy(REPOSITORY / "Makefile", tmp_path)
    for name in ("setup.cfg", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    monkeypatch.delenv("UV_TORCH_BACKEND", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    done = subprocess.run(["make", "--dry-run", "demo"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "--editable" in done.stdout and ("uv pip install" in done.stdout) == by_uv


def test_make_clean_removes_what_make_makes_and_nothing_of_the_user(tmp_path):
    shutil.copy(REPOSITORY / "Makefile", tmp_path)
    made = [
        ".venv/package",
        ".venv-floors/installed",
        ".cache/transformers.js/x",
        f"{NAME}.egg-info/x",
        "build/site/x",
        "dist/x",
    ]
    kept = [
        "work/model/config.json",
        "build/mine",
        "build/figures/model/x",
        "build/lib/mine.py",
        ".cache/mine",
        "mine.egg-info/x",
    ]
    for name in made + kept:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    subprocess.run(["make", "--silent", "clean"], cwd=tmp_path, check=True)
    assert [name for name in made + kept if (tmp_path / name).exists()] == kept
