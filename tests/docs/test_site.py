"""The documentation site that `make site` builds: every link leads somewhere, and every public name has its place."""

import dataclasses
import json
import re
from html import escape
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from helpers.paths import REPOSITORY

from modeling_roformer import RoFormerConfig

pytestmark = pytest.mark.site

SITE = REPOSITORY / "build" / "site"
PACKAGES = [
    "modeling_roformer",
    "modeling_roformer.conversion",
    "modeling_roformer.hub",
    "modeling_roformer.serving.onnx_export",
    "modeling_roformer.serving.vectors",
]


class Page(HTMLParser):
    """Anchors, links, and the addresses that a browser loads by itself."""

    def __init__(self, file: Path):
        super().__init__()
        self.anchors, self.links, self.loaded = set(), [], []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        elif tag == "link" and values.get("href"):
            self.loaded.append(values["href"])
        if values.get("src"):
            self.loaded.append(values["src"])


@pytest.fixture(scope="module")
def pages() -> dict[Path, Page]:
    return {file: Page(file) for file in SITE.rglob("*.html") if file.name != "404.html"}


def test_every_page_of_the_documentation_is_there(pages):
    docs = REPOSITORY / "docs"
    names = {path.relative_to(docs).with_suffix("") for path in docs.rglob("*.md")} - {Path("index")}
    assert Path("zh/converting") in names
    assert {SITE / name / "index.html" for name in names} | {SITE / "index.html"} <= pages.keys()


def test_no_fence_of_a_block_is_shown_as_text(pages):
    for file in pages:
        text = re.sub(r"<(pre|code)\b.*?</\1>", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert "```" not in text, file


def test_every_public_name_is_in_the_reference(pages):
    anchors = set().union(*(page.anchors for file, page in pages.items() if file.parent.parent == SITE / "api"))
    public = {f"{package}.{name}" for package in PACKAGES for name in import_module(package).__all__}
    assert len(public) > 40
    assert public - anchors == set()


def test_every_name_that_a_page_imports_is_in_the_reference(pages):
    anchors = set().union(*(page.anchors for page in pages.values()))
    for path in (REPOSITORY / "docs").glob("*.md"):
        for module, names in re.findall(
            r"^from (modeling_roformer[\w.]*) import (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE
        ):
            for name in names.split(", "):
                assert {f"{module}.{name}", f"modeling_roformer.{name}"} & anchors, path


def test_every_link_within_the_site_leads_to_a_file_and_an_anchor(pages):
    followed = 0
    for file, page in pages.items():
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file() and target.is_relative_to(SITE), (file, link)
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].anchors, (file, link)
            followed += 1
    assert followed > 1000


def test_nothing_is_loaded_from_another_host(pages):
    for file, page in pages.items():
        assert [address for address in page.loaded if urlsplit(address).netloc] == [], file
    for file in SITE.rglob("*.css"):
        assert not re.search(r"(@import|url\()[ \"']*(https?:)?//", file.read_text(encoding="utf-8")), file


def test_notebooks_are_shown_with_their_outputs(pages):
    notebooks = list((REPOSITORY / "examples" / "notebooks").glob("*.ipynb"))
    assert notebooks
    for notebook in notebooks:
        file = SITE / "repository" / "examples" / "notebooks" / notebook.name / "index.html"
        outputs = [
            output for cell in json.loads(notebook.read_text("utf-8"))["cells"] for output in cell.get("outputs", [])
        ]
        pictures = [output["data"]["image/png"].strip() for output in outputs if "image/png" in output.get("data", {})]
        inline = "data:image/png;base64,"
        shown = [address.removeprefix(inline) for address in pages[file].loaded if address.startswith(inline)]
        assert shown == pictures != []
        text = file.read_text(encoding="utf-8")
        printed = [line for output in outputs for line in "".join(output.get("text", "")).splitlines()]
        assert printed and [line for line in printed if escape(line, quote=False) not in text] == []


def test_links_that_leave_docs_lead_to_the_page_of_the_file():
    from outside_links import with_site_links

    page = "[a](../modeling_roformer/rotary.py#x) [b](../model_cards) [c](serving.md#y)\n```\n[d](../README.md)\n```\n"
    assert with_site_links(page, "docs/reference.md") == (
        "[a](repository/modeling_roformer/rotary.py.md#x) [b](repository/model_cards/README.md) [c](serving.md#y)\n"
        "```\n[d](../README.md)\n```\n"
    )
    assert with_site_links("[a](docs/index.md) [b](LICENSE)", "CHANGELOG.md") == "[a](../index.md) [b](LICENSE.md)"


@pytest.mark.parametrize("link", ["../modeling_roformer/missing.py", "../../elsewhere.md", "https://example.org/x.md"])
def test_links_without_a_file_are_left_for_mkdocs_to_report(link):
    from outside_links import linked_paths, with_site_links

    assert with_site_links(f"[a]({link})", "docs/reference.md") == f"[a]({link})"
    assert linked_paths(f"[a]({link})", "docs/reference.md") == []


def test_arguments_that_share_an_entry_get_one_each():
    from docstrings import with_single_arguments

    shared = "Args:\n    a: one\n    b, c: two\n        lines\n\nReturns:\n    d, e: more"
    assert with_single_arguments(shared) == (
        "Args:\n    a: one\n    b: two\n        lines\n    c: two\n        lines\n\nReturns:\n    d, e: more"
    )


def test_configurations_have_the_signature_that_transformers_gives_them(pages):
    text = (SITE / "api" / "models" / "index.html").read_text(encoding="utf-8")
    signature = re.sub(r"<[^>]*>", "", text).partition("RoFormerConfig(")[2].partition(")")[0]
    for field in dataclasses.fields(RoFormerConfig):
        if field.name in vars(RoFormerConfig).get("__annotations__", {}):
            assert re.search(rf"\b{field.name}: ", signature), field.name
    assert "vocab_size: int = 50000" in signature


def test_examples_become_blocks_of_code():
    from docstrings import with_fenced_examples

    assert with_fenced_examples("Add.\n\n>>> 1 + 1\n2\n\nMore.") == "Add.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore."
    for kept in ("```python\n>>> 1\n```", "Example:\n    >>> 1"):
        assert with_fenced_examples(kept) == kept
