"""Hooks of mkdocs: the API reference, one page for each group of public names, made from their docstrings."""

import ast
import re
import shutil
from pathlib import Path

from mkdocs.structure.files import File

REPOSITORY = Path(__file__).resolve().parents[2]
# The package as an installation has it, where mkdocstrings reads it: in the tree its folders lie side by side.
SOURCES = REPOSITORY / "build" / "site_sources"
IMPORT = re.compile(r"^from (modeling_roformer\.[\w.]+) import (.+)$", re.MULTILINE)


def package_folders() -> dict[str, Path]:
    """Return the folder of each room of the package, by the name under which it is imported."""
    rooms = {file.parent.name: file.parent for file in REPOSITORY.glob("*/__init__.py")}
    package = rooms.pop("modeling_roformer")
    return {package.name: package} | {f"{package.name}.{room}": folder for room, folder in rooms.items()}


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


def reference_pages() -> dict[str, str]:
    """Return the Markdown of each page of the reference, by the name of its file."""
    models = model_names()
    pages = {
        "models": ("RoFormer", "modeling_roformer", models["models"]),
        "translation": ("Encoder and decoder", "modeling_roformer", models["translation"]),
        "nezha": ("NEZHA", "modeling_roformer", models["nezha"]),
        "tokenization": ("Tokenizer", "modeling_roformer", models["tokenization"]),
    }
    for title, package in [
        ("Data", "modeling_roformer.data"),
        ("Conversion", "modeling_roformer.conversion"),
        ("Hub", "modeling_roformer.hub"),
        ("Training", "modeling_roformer.training"),
        ("Predictions", "modeling_roformer.serving.prediction"),
        ("Vectors of a corpus", "modeling_roformer.serving.vectors"),
        ("ONNX export", "modeling_roformer.serving.onnx_export"),
    ]:
        pages[package.rpartition(".")[2]] = (title, package, package_names(package))
    texts = {}
    for page, (title, package, names) in pages.items():
        entries = "\n\n".join(f"::: {name}" for name in names)
        texts[page] = f"# {title}\n\nImport these names from `{package}`.\n\n{entries}\n"
    # The names of the page come from several modules: the headings show which.
    option = "    options:\n      show_root_full_path: true"
    entries = "\n\n".join(f"::: {name}\n{option}" for name in names_in_docs("modeling_roformer.serving.page"))
    texts["page"] = f"# Page\n\n{entries}\n"
    return texts


def on_startup(command: str, dirty: bool) -> None:
    """Copy the package to where mkdocstrings reads it."""
    shutil.rmtree(SOURCES, ignore_errors=True)
    # The parent comes first: its folder must not exist yet.
    for name, folder in sorted(package_folders().items()):
        ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
        shutil.copytree(folder, SOURCES.joinpath(*name.split(".")), ignore=ignored)


def on_files(files, config):
    """Add the pages of the reference."""
    for page, text in reference_pages().items():
        files.append(File.generated(config, f"api/{page}.md", content=text))
    return files
