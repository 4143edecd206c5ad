"""The Chinese pages show what the English ones show, so that neither runs ahead. The blocks run in acceptance tests.

A table that a program prints into an English page is only there: the Chinese page has a link to its section.
"""

import re
from posixpath import dirname, join, normpath

import pytest
from helpers.pages import CHINESE
from helpers.paths import REPOSITORY

ENGLISH = {chinese: english for english, chinese in CHINESE.items()}
FENCE = r"^```[\s\S]*?^```$"
BLOCK = re.compile(rf"{FENCE}|^ {{4}}.*$", re.MULTILINE)
COMMENT = re.compile(r" *(#|//) .*$", re.MULTILINE)
HEADING = re.compile(rf"{FENCE}|^(?P<level>#+) (?P<title>.*)$", re.MULTILINE)
PRINTED = re.compile(r"^<!-- (\w+).*-->$[\s\S]*?^<!-- /\1.*-->$", re.MULTILINE)
TABLE = re.compile(r"(?:^\|.*\n?)+", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\(([^)]+)\)")


def text_of(page: str) -> str:
    return (REPOSITORY / page).read_text(encoding="utf-8")


def headings(text: str) -> list[re.Match]:
    return [found for found in HEADING.finditer(text) if found["level"]]


def sections(page: str) -> list[str]:
    """Return the sections of a page, each from its heading to the next one of any level."""
    text = text_of(page)
    starts = [found.start() for found in headings(text)]
    assert starts[0] == 0
    return [text[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]


def blocks(section: str) -> list[str]:
    return [COMMENT.sub("", block) for block in BLOCK.findall(section)]


def running(section: str) -> str:
    """Return the text of a section, without its blocks and the tables that programs print."""
    return BLOCK.sub("", PRINTED.sub("", section))


def place(link: str, page: str) -> tuple[str, int | None]:
    """Return what a link leads to: the English page or the file, and the number of the heading."""
    target, _, heading = link.partition("#")
    if target.startswith("https://"):
        return link, None
    path = normpath(join(dirname(page), target)) if target else page
    titles = [re.sub(r"[^\w -]", "", found["title"]) for found in headings(text_of(path))] if heading else []
    number = [title.lower().replace(" ", "-") for title in titles].index(heading) if heading else None
    return ENGLISH.get(path, path), number


def places(section: str, page: str) -> set[tuple[str, int | None]]:
    return {place(link, page) for link in LINK.findall(running(section))}


@pytest.fixture(params=CHINESE)
def pages(request) -> tuple[str, str]:
    return request.param, CHINESE[request.param]


@pytest.fixture
def pairs(pages) -> list[tuple[str, str]]:
    english, chinese = map(sections, pages)
    levels = [[section.partition(" ")[0] for section in page] for page in (english, chinese)]
    assert levels[0] == levels[1], pages
    return list(zip(english, chinese, strict=True))


def test_blocks_are_the_same_except_for_comments(pairs):
    assert any(blocks(english) for english, _ in pairs)
    for english, chinese in pairs:
        assert blocks(chinese) == blocks(english)


def test_tables_have_the_same_number_of_rows(pairs):
    for english, chinese in pairs:
        assert not PRINTED.search(chinese)
        rows = [[found.count("\n|") for found in TABLE.findall(running(section))] for section in (english, chinese)]
        assert rows[0] == rows[1], chinese


def test_names_in_code_are_the_same(pairs):
    for english, chinese in pairs:
        names = [{" ".join(code.split()) for code in CODE.findall(running(text))} for text in (english, chinese)]
        assert names[0] == names[1], chinese


def test_links_lead_to_the_same_places(pages, pairs):
    for number, (english, chinese) in enumerate(pairs):
        printed = {(pages[0], number)} if PRINTED.search(english) else set()
        assert places(chinese, pages[1]) == places(english, pages[0]) | printed, chinese
    assert (pages[0], None) in places(pairs[0][1], pages[1]) & places(pairs[0][0], pages[0])


def test_sections_have_about_the_same_content(pairs):
    """Chinese text has a third to a half of the characters of English."""
    for english, chinese in pairs:
        lengths = [len(re.sub(r"\s+", " ", LINK.sub("]", CODE.sub("", running(text))))) for text in (english, chinese)]
        assert 0.3 * lengths[0] - 20 <= lengths[1] <= 0.65 * lengths[0] + 20, chinese
