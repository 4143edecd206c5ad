"""The page in a real browser (`make test-slow`)."""

import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import threading
from importlib.util import find_spec

import pytest
from helpers import pages
from helpers.messages import assert_states
from helpers.paths import REPOSITORY
from helpers.spaces import make_space

from modeling_roformer.conversion import convert
from modeling_roformer.serving.page import server
from modeling_roformer.serving.page.examples import CHINESE
from modeling_roformer.serving.page.model_info import model_info_of

pytestmark = pytest.mark.page
_WHY = "the extras page and browser are not installed: make test-slow"
playwright = pytest.importorskip("playwright.sync_api", reason=_WHY)
httpx, _ = (pytest.importorskip(name, reason=_WHY) for name in ("httpx", "uvicorn"))  # Gradio brings them
if find_spec("gradio") is None:
    pytest.skip(_WHY, allow_module_level=True)
from helpers.page_server import PageProcess, PageServer  # noqa: E402, needs uvicorn

expect = playwright.expect
CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
PICTURE = REPOSITORY / "docs" / "in-a-browser.png"  # drawn anew where it is not there
BLOCKS = [block for page in pages.PAGES for block in pages.blocks(page) if block.extra == "page"]
# `roformer`, which reports every connection to another machine.
WATCHED = """
import sys
def watch(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo"):
        host = arguments[1] if event == "socket.connect" else arguments[:1]
        if isinstance(host, tuple) and host[0] not in ("127.0.0.1", "localhost", "::1", None):
            print("outside:", event, host, file=sys.stderr, flush=True)
sys.addaudithook(watch)
from roformer_command import main
main()
"""


@pytest.fixture(scope="module")
def mini(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "roformer-mini-zh"
    convert(REPOSITORY / "examples" / "roformer-mini-zh", folder)
    return folder


@pytest.fixture(scope="module")
def command(mini, tmp_path_factory):
    command = PageProcess([sys.executable, "-c", WATCHED], mini, tmp_path_factory.mktemp("log") / "log")
    yield command
    assert command.stop() == 0
    assert "outside:" not in command.log.read_text() and "Traceback" not in command.log.read_text()


@pytest.fixture(scope="module")
def here():
    """Return a function that serves a folder's page in a thread, and returns its address."""
    running = []

    def serve(folder, **options) -> str:
        running.append(PageServer(server.application(folder, **options)))
        return running[-1].address

    yield serve
    for one in running:
        one.stop()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: apt-get install chromium fonts-noto-cjk")
    expect.set_options(timeout=60_000)
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield browser
        browser.close()


def title(tab: str) -> str:
    from modeling_roformer.serving.page.tabs import _TABS

    return _TABS[tab].title


class Visitor:
    """A page that is open in the browser, and all that it has asked the network for."""

    def __init__(self, chromium, address):
        self.page = chromium.new_page(viewport={"width": 1200, "height": 720}, color_scheme="light")
        self.page.set_default_timeout(60_000)
        self.requests = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)
        self.page.get_by_role("tab").first.wait_for()

    def open(self, tab):
        self.page.get_by_role("tab", name=title(tab), exact=True).click()
        self.panel = self.page.locator(f"#{tab}")
        self.panel.locator("textarea").first.wait_for()

    def ask(self, *texts):
        for box, text in zip(self.panel.locator("textarea").all(), texts, strict=True):
            box.fill(text)
        self.panel.locator("button.primary").click()

    def error(self) -> str:
        """Return the message of an error, and close it."""
        self.page.locator(".toast-body").wait_for()
        message = self.page.locator(".toast-body").inner_text().splitlines()[-1]
        self.page.locator(".toast-close").click()
        self.page.locator(".toast-body").wait_for(state="detached")
        return message


@pytest.fixture(scope="module")
def visitor(chromium, command):
    return Visitor(chromium, command.address)


def test_the_tabs_are_those_of_the_model(visitor, mini):
    titles = [tab.inner_text() for tab in visitor.page.get_by_role("tab").all()]
    assert titles == [title(tab) for tab in model_info_of(mini).tabs]
    assert visitor.page.get_by_role("heading", level=1).inner_text() == "roformer-mini-zh"


@pytest.mark.parametrize(
    ("tab", "texts", "answers"),
    [
        ("fill", ["这本书的内容很好，值得[MASK]。"], ["值得 推荐 1 。", "1 推荐 0.645", "1 购买 0.168", "个词"]),
        (
            "document",
            ["双方签订房屋租赁合同。被告没有支付租金。解除原告与被告之间的[MASK]合同。"],
            ["whole document", "1 租赁 0.", "sentence alone", "仲裁 0.", "之间的 租赁 1 合同"],
        ),
        ("segments", ["公园ABC。"], ["公园 5911 · 0–2", "##c 4717 · 4–5", "[SEP] 3"]),
        (
            "triplet",
            ["租客要求房东退还押金。", "两车相撞，被告负主要责任。", "房屋租赁合同到期，押金没有退还。"],
            ["C is closer to A", "B 0.800", "C 0.881"],
        ),
        (
            "rank",
            ["租客要求房东退还押金。", "两车相撞，被告负主要责任。\n房屋租赁合同到期，押金没有退还。"],
            ["1. 房屋租赁合同到期，押金没有退还。 0.881", "2. 两车相撞，被告负主要责任。 0.800"],
        ),
        ("compare", ["租客要求房东退还押金。\n两车相撞，被告负主要责任。"], ["两车相撞，被告负主要责任。 0.80 1.00"]),
    ],
)
def test_a_visitor_types_and_reads_the_answer(visitor, tab, texts, answers):
    visitor.open(tab)
    visitor.ask(*texts)
    for answer in answers:
        expect(visitor.panel).to_contain_text(re.compile(r"\s*".join(map(re.escape, answer.split()))))


def test_an_example_is_answered_by_a_click(visitor):
    """The picture of docs/ shows this page."""
    visitor.open("document")
    visitor.panel.get_by_role("button", name="原告王建国").click()
    expect(visitor.panel).to_contain_text(re.compile(r"1\s*租赁\s*0\.9"))
    assert visitor.panel.locator("textarea").input_value() == CHINESE["document"][0][0]
    visitor.page.mouse.move(0, 0)
    visitor.page.wait_for_timeout(500)
    picture = visitor.page.screenshot()
    assert 20_000 < len(picture) < 300_000
    if not PICTURE.exists():
        PICTURE.write_bytes(picture)


@pytest.mark.parametrize("tab", ["fill", "document", "segments", "rank", "compare"])
def test_texts_of_visitors_are_no_html(visitor, tab):
    text = f"<img src=x onerror=alert(1)> $$x$$ **押金** [MASK] {tab}"
    visitor.open(tab)
    visitor.ask(*["押金。"] * (tab == "rank"), f"{text}\n{text}" if tab in ("rank", "compare") else text)
    expect(visitor.panel).to_contain_text("<img src=x" if tab != "segments" else "##er")
    if tab != "segments":  # its tokens have no Markdown
        expect(visitor.panel).to_contain_text("$$x$$ **押金**")
    assert visitor.page.locator("img[src=x]").count() == 0


def test_the_name_of_a_folder_is_no_html(chromium, here, mini, tmp_path):
    folder = shutil.copytree(mini, tmp_path / "# *a* <img src=x onerror=alert(1)>")
    visitor = Visitor(chromium, here(folder))
    assert visitor.page.get_by_role("heading", level=1).inner_text() == folder.name
    assert visitor.page.locator("img[src=x]").count() == 0
    visitor.page.close()


@pytest.mark.parametrize(("text", "facts"), [("押金。", ["no [MASK]"]), ("押" * 40_000, ["32,768 characters"])])
def test_errors_are_shown_on_one_line(visitor, text, facts):
    visitor.open("fill")
    visitor.ask(text)
    assert_states(visitor.error(), *facts)
    visitor.ask("押金没有[MASK]。")
    expect(visitor.panel).to_contain_text("tokens")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everyone_sees_where_to_write(chromium, command, scheme):
    """The contrast of a field's border with both sides is at least 3 to 1, as WCAG 2.2 requires."""
    page = chromium.new_page(color_scheme=scheme)
    page.goto(command.address)
    page.locator("#fill textarea").wait_for()
    colours = page.evaluate(
        """() => {
            const colours = [getComputedStyle(document.querySelector("#fill textarea")).borderTopColor];
            let one = document.querySelector("#fill textarea");
            for (; one && colours.length < 3; one = one.parentElement) {
                const colour = getComputedStyle(one).backgroundColor;
                if (!colour.startsWith("rgba")) colours.push(colour);
            }
            return colours;
        }"""
    )
    page.close()
    border, *around = (luminance(colour) for colour in colours)
    assert len(around) == 2
    for other in around:
        assert (max(border, other) + 0.05) / (min(border, other) + 0.05) >= 3


def luminance(colour: str) -> float:
    """Return the relative luminance of `rgb(r, g, b)` by WCAG's definition."""
    shares = [int(part) / 255 for part in re.findall(r"\d+", colour)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_nothing_goes_to_another_machine(visitor, command):
    """This covers all tests above. The fixture `command` checks the server's own connections when it stops."""
    outside = [url for url in visitor.requests if not url.startswith((command.address, "data:", "blob:"))]
    assert visitor.requests and not outside


def test_no_file_and_no_path_of_the_machine_is_reached(command, mini):
    for path in (f"file={mini}/config.json", "file=/etc/passwd", f"file/{mini}/vocab.txt", "file=../config.json"):
        assert httpx.get(f"{command.address}/gradio_api/{path}").status_code in (403, 404), path
    sent = httpx.post(f"{command.address}/gradio_api/upload", files={"files": ("a.txt", b"some text")})
    assert sent.status_code == 413
    shown = httpx.get(command.address).text + httpx.get(f"{command.address}/config").text
    shown += httpx.get(f"{command.address}/gradio_api/info").text
    for secret in (str(mini), str(mini.parent), str(REPOSITORY), sys.prefix, os.path.expanduser("~/")):
        assert secret not in shown, secret


def test_an_error_of_the_program_is_not_shown(chromium, here, mini, monkeypatch, caplog):
    def broken(*texts):
        raise RuntimeError(f"{mini} is secret")

    from modeling_roformer.serving.page.tabs import _TABS

    monkeypatch.setitem(_TABS, "fill", _TABS["fill"]._replace(task=broken))
    visitor = Visitor(chromium, here(mini))
    visitor.open("fill")
    visitor.ask("[MASK]")
    assert_states(visitor.error(), "the server", "log")
    assert f"{mini} is secret" in caplog.text
    visitor.page.close()


def test_more_questions_than_may_wait(here, mini, monkeypatch):
    from modeling_roformer.serving.page.tabs import _TABS

    may_end = threading.Event()
    monkeypatch.setitem(
        _TABS, "fill", _TABS["fill"]._replace(task=lambda *texts: may_end.wait(60), show=lambda _: ([], None, "done"))
    )
    with httpx.Client(base_url=here(mini, waiting=1), timeout=900) as client:
        asked = [client.post("/gradio_api/call/fill", json={"data": ["[MASK]"]}) for _ in range(4)]
        codes = [answer.status_code for answer in asked]
        may_end.set()
        assert codes[0] == 200 and codes[-1] == 503 and "Queue is full" in asked[-1].json()["detail"]
        answered = [
            client.get(f"/gradio_api/call/fill/{answer.json()['event_id']}") for answer in asked if answer.is_success
        ]
        assert all("event: complete" in answer.text and '"done"' in answer.text for answer in answered)


def test_the_command_prints_what_the_page_says(command):
    (block,) = (block for block in BLOCKS if block.commands)
    assert block.commands == ["roformer page roformer-mini-zh"]
    pages.assert_printed(block, command.said)


def test_python_of_the_pages(mini, monkeypatch):
    monkeypatch.chdir(mini.parent)
    for block in BLOCKS:
        if block.language == "python":
            assert pages.run_code(block, {}) == block.output


def test_the_space_is_the_page(mini, tmp_path):
    """The Space is made by its README, and runs without another installation of the package."""
    space = make_space(tmp_path)
    site_packages = sysconfig.get_path("purelib")
    # -S: no .pth of this environment, which is where its own installation is.
    start = f"import runpy, sys; sys.path[:0] = [{str(space)!r}]; sys.path.append({site_packages!r}); "
    where = f"{start}import modeling_roformer as found; print(found.__version__, found.__file__)"
    found = subprocess.run(
        [sys.executable, "-S", "-c", where], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip().partition(" ")[2] == str(space / "modeling_roformer" / "__init__.py")
    with socket.create_server(("127.0.0.1", 0)) as port:
        number = port.getsockname()[1]
    environment = {**os.environ, "MODEL": str(mini), "GRADIO_SERVER_PORT": str(number)}
    command = [sys.executable, "-S", "-c", f"{start}runpy.run_path('app.py', run_name='__main__')"]
    lost = subprocess.run(command, cwd=space, env=environment | {"MODEL": "model"}, capture_output=True, text=True)
    assert lost.returncode == 1
    assert_states(lost.stderr, "folder model", "MODEL", "NAME/REPOSITORY")
    process = subprocess.Popen(command, cwd=space, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert f"http://0.0.0.0:{number}" in process.stdout.readline()
        # The Hub's proxy forwards the visitor's Host.
        visitor = {"Host": "you-page.hf.space", "X-Forwarded-Proto": "https"}
        assert "roformer-mini-zh" in httpx.get(f"http://127.0.0.1:{number}", headers=visitor).text
    finally:
        process.terminate()
        process.wait(timeout=900)
    metadata = (space / "README.md").read_text(encoding="utf-8").split("---")[1]
    assert {"sdk: gradio", "app_file: app.py"} <= set(metadata.splitlines())
