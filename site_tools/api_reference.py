"""Hooks of mkdocs: the API reference, one page for each group of public names, made from their docstrings."""

import ast
import re
import shutil
from configparser import ConfigParser
from pathlib import Path

from mkdocs.structure.files import File

REPOSITORY = Path(__file__).resolve().parents[1]
# The package as an installation has it, where mkdocstrings reads it: in the tree its folders lie side by side.
SOURCES = REPOSITORY / "build" / "site_sources"
IMPORT = re.compile(r"^from (modeling_roformer\.[\w.]+) import (.+)$", re.MULTILINE)


def package_folders() -> dict[str, Path]:
    """Return the folder of each part of the package, as setup.cfg's `package_dir` maps them."""
    settings = ConfigParser()
    settings.read(REPOSITORY / "setup.cfg", encoding="utf-8")
    lines = settings["options"]["package_dir"].strip().splitlines()
    return {name.strip(): REPOSITORY / folder.strip() for name, _, folder in (line.partition("=") for line in lines)}


def exported_names(file: Path) -> list[str]:
    """Return the names that a file lists in its `__all__`, without importing it."""
    names = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            names += ast.literal_eval(node.value)
    return names


def names_in_docs(prefix: str) -> list[str]:
    """Return the full names below a package that the pages of docs/ import."""
    found = set()
    for page in (REPOSITORY / "docs").glob("*.md"):
        for module, names in IMPORT.findall(page.read_text(encoding="utf-8")):
            if f"{module}.".startswith(f"{prefix}."):
                found |= {f"{module}.{name.strip()}" for name in names.split(",")}
    return sorted(found)


def model_names() -> dict[str, list[str]]:
    """Return the public names of `modeling_roformer`, grouped by subject."""
    groups = {"models": [], "translation": [], "nezha": [], "tokenization": []}
    patterns = {"tokenization": "Tokenizer", "nezha": "^Nezha", "translation": "Seq2Seq|ForConditionalGeneration"}
    for name in exported_names(REPOSITORY / "modeling_roformer" / "registration" / "public_names.py"):
        group = next((group for group, pattern in patterns.items() if re.search(pattern, name)), "models")
        groups[group].append(f"modeling_roformer.{name}")
    return groups


def package_names(package: str) -> list[str]:
    """Return the full names that a subpackage exports."""
    room = ".".join(package.split(".")[:2])
    folder = package_folders()[room] if room in package_folders() else REPOSITORY / room.replace(".", "/")
    file = folder.joinpath(*package.split(".")[2:], "__init__.py")
    return [f"{package}.{name}" for name in exported_names(file)]


def reference_pages() -> dict[str, tuple[str, list[str]]]:
    """Return the title and the names of each page of the reference."""
    models = model_names()
    return {
        "models": ("RoFormer", models["models"]),
        "translation": ("Encoder and decoder", models["translation"]),
        "nezha": ("NEZHA", models["nezha"]),
        "tokenization": ("Tokenizer", models["tokenization"]),
        "conversion": ("modeling_roformer.conversion", package_names("modeling_roformer.conversion")),
        "hub": ("modeling_roformer.hub", package_names("modeling_roformer.hub")),
        "training": ("modeling_roformer.training", names_in_docs("modeling_roformer.training")),
        "vectors": ("modeling_roformer.serving.vectors", package_names("modeling_roformer.serving.vectors")),
        "onnx_export": (
            "modeling_roformer.serving.onnx_export",
            package_names("modeling_roformer.serving.onnx_export"),
        ),
        "page": ("modeling_roformer.serving.page", names_in_docs("modeling_roformer.serving.page")),
    }


def on_startup(command: str, dirty: bool) -> None:
    """Copy the package to where mkdocstrings reads it."""
    shutil.rmtree(SOURCES, ignore_errors=True)
    # The parent comes first: its folder must not exist yet.
    for name, folder in sorted(package_folders().items()):
        ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
        shutil.copytree(folder, SOURCES.joinpath(*name.split(".")), ignore=ignored)


def on_files(files, config):
    """Add the pages of the reference."""
    for page, (title, names) in reference_pages().items():
        text = "\n\n".join([f"# {title}", *(f"::: {name}" for name in names)])
        files.append(File.generated(config, f"api/{page}.md", content=f"{text}\n"))
    return files
