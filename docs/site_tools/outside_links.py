"""Hooks of mkdocs: pages for the files outside docs/ that its pages link to, so that these links work on the site.

A text file becomes a page that shows it, a Markdown file or a notebook a page of its own, a folder a page that lists
its files, and an image is copied. They lie under `repository/`, at the paths that they have in the repository.
"""

import json
import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from urllib.parse import unquote

from mkdocs.structure.files import File, InclusionLevel

REPOSITORY = Path(__file__).resolve().parents[2]
# The pages of the navigation that lie outside docs/.
STARTS = ["CHANGELOG.md"]
LINK = re.compile(r"(?<=\]\()(?P<target>[^)#\s:]+)(?=[#)])")
FENCE = re.compile(r"^ *(?P<fence>```+).*?^ *(?P=fence) *$", re.DOTALL | re.MULTILINE)
LANGUAGES = {".py": "python", ".sh": "bash", ".json": "json", ".yaml": "yaml"}
IMAGES = {".png", ".jpg", ".svg"}
MOST_BYTES = 50_000  # longer code is listed, and not shown


def is_shown(path: str) -> bool:
    """Return whether a file or a folder of the repository has a place on the site."""
    place = REPOSITORY / path
    if path.startswith("..") or place.name.startswith(".") or place.name == "__pycache__":
        return False
    if place.is_dir() or place.suffix in IMAGES:
        return place.exists()
    if not place.is_file() or (place.stat().st_size > MOST_BYTES and place.suffix not in (".ipynb", ".md")):
        return False
    try:
        place.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return False
    return True


def folder_of(path: str) -> str:
    """Return the folder that the links of a page start from; the page of a folder is its README."""
    return path if (REPOSITORY / path).is_dir() else dirname(path)


def target_of(link: str, path: str) -> str:
    """Return the path in the repository that a link of the page `path` leads to."""
    target = normpath(join(folder_of(path), unquote(link)))
    return dirname(target) if target.endswith("/README.md") else target


def place_on_site(path: str) -> str:
    """Return the place that a file or a folder of the repository has on the site, as a path below docs/.

    ```python
    >>> place_on_site("docs/serving.md"), place_on_site("modeling_roformer/rotary.py")
    ('serving.md', 'repository/modeling_roformer/rotary.py.md')
    ```
    """
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if (REPOSITORY / path).is_dir():
        return f"repository/{path}/README.md"
    return f"repository/{path}" if Path(path).suffix in IMAGES | {".md"} else f"repository/{path}.md"


def split_at_fences(markdown: str) -> list[str]:
    """Return a page in pieces: text and blocks of code in turn."""
    ends = [end for found in FENCE.finditer(markdown) for end in found.span()]
    return [markdown[start:end] for start, end in zip([0, *ends], [*ends, None], strict=True)]


def linked_paths(markdown: str, path: str) -> list[str]:
    """Return the paths in the repository that the page `path` links to, those that have a place on the site."""
    links = [found["target"] for piece in split_at_fences(markdown)[::2] for found in LINK.finditer(piece)]
    return [target for link in links if is_shown(target := target_of(link, path))]


def with_site_links(markdown: str, path: str) -> str:
    """Return the page `path` with links to the places on the site. mkdocs reports the links that it finds unchanged."""

    def on_site(found: re.Match) -> str:
        target = target_of(found["target"], path)
        if not is_shown(target):
            return found["target"]
        return relpath(place_on_site(target), dirname(place_on_site(path)) or ".")

    pieces = split_at_fences(markdown)
    pieces[::2] = [LINK.sub(on_site, piece) for piece in pieces[::2]]
    return "".join(pieces)


def list_of_files(folder: str) -> str:
    """Return a Markdown list of what a folder holds."""
    lines = []
    for place in sorted((REPOSITORY / folder).iterdir()):
        name = f"{place.name}/" if place.is_dir() else place.name
        if is_shown(f"{folder}/{place.name}"):
            lines += [f"- [`{name}`]({place.name})"] if name != "README.md" else []
        elif not name.startswith((".", "__pycache__")):
            lines.append(f"- `{name}`")
    return "\n".join(lines)


def notebook_text(notebook: dict) -> str:
    """Return the Markdown of a notebook: its cells, with the texts and the pictures that they put out."""
    pieces = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        pieces.append(f"```python\n{source}\n```" if cell["cell_type"] == "code" else source)
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                pieces.append(f"![output](data:image/png;base64,{''.join(data['image/png']).strip()})")
            else:
                pieces.append(f"```text\n{''.join(output.get('text') or data['text/plain'])}\n```")
    return "\n\n".join(pieces)


def page_text(path: str) -> str:
    """Return the Markdown of the page that shows a file or a folder of the repository."""
    place = REPOSITORY / path
    if place.is_dir():
        readme = place / "README.md"
        head = readme.read_text(encoding="utf-8") if readme.is_file() else f"# {path}/\n"
        files = list_of_files(path)
        return f"{head}\n## In this folder\n\n{files}\n" if files else head
    text = place.read_text(encoding="utf-8")
    if place.suffix == ".md":
        return text
    if place.suffix == ".ipynb":
        return notebook_text(json.loads(text))
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    no_search = "---\nsearch:\n  exclude: true\n---\n"
    return f"{no_search}# {path}\n\n{fence}{LANGUAGES.get(place.suffix, 'text')}\n{text}\n{fence}\n"


def outside_pages(pages: dict[str, str]) -> dict[str, str | None]:
    """Return what pages link to outside docs/, by its path: the Markdown of its page, or None for an image.

    Links of these pages are followed too.

    Args:
        pages: the Markdown of the pages of docs/, by their paths in the repository
    """
    found: dict[str, str | None] = {}
    waiting = [*STARTS, *(target for path, markdown in pages.items() for target in linked_paths(markdown, path))]
    while waiting:
        path = waiting.pop()
        if not path.startswith("docs/") and path not in found:
            found[path] = None if Path(path).suffix in IMAGES else page_text(path)
            waiting += linked_paths(found[path] or "", path)
    return found


def on_files(files, config):
    """Add the pages and the images that lie outside docs/."""
    pages = {
        f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages() if not file.generated_by
    }
    for path, markdown in outside_pages(pages).items():
        content = (REPOSITORY / path).read_bytes() if markdown is None else with_site_links(markdown, path)
        inclusion = InclusionLevel.INCLUDED if path in STARTS else InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, place_on_site(path), content=content, inclusion=inclusion))
    return files


def on_page_markdown(markdown: str, page, config, files) -> str:
    """Change the links of a page of docs/ that leave it, and drop `extra=` of blocks, which would be shown as text."""
    markdown = re.sub(r"^(```\w+) extra=[\w-]+$", r"\1", markdown, flags=re.MULTILINE)
    return markdown if page.file.generated_by else with_site_links(markdown, f"docs/{page.file.src_uri}")
