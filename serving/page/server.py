"""The server of the page."""

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

from ...output.extras import needs_extra
from ..errors import ServingError
from .abilities import abilities_of

HOST, PORT = "127.0.0.1", 7860  # only this machine; Gradio's port
WAITING, LEAST_LENGTH = 64, 16
_FONTS = ("system-ui", "Noto Sans CJK SC", "Source Han Sans SC", "PingFang SC", "Microsoft YaHei", "sans-serif")
_FIELDS, _BYTES = 3, 6  # a tab has at most three fields, and JSON may write a character as \uXXXX


def serve(
    folder: str | Path,
    *,
    host: str = HOST,
    port: int = PORT,
    max_length: int | None = None,
    waiting: int = WAITING,
    proxy: bool = False,
    tell: Callable[[str], None] = print,
) -> None:
    """Serve the page until the process is interrupted.

    Args:
        folder: a saved model.
        host: address of this machine to listen on; "0.0.0.0" listens on all of them, for other machines.
        port: 0 selects a free port.
        max_length: longest input in tokens, 4,096 by default.
        waiting: most requests in the queue; further ones are refused.
        proxy: a reverse proxy stands before the page and forwards the visitors' `Host`. The page then accepts any host
            name, and trusts the headers `X-Forwarded-…`.
        tell: called with the page's address when it is ready.

    Raises:
        ServingError: the page cannot show the folder's model, Gradio is not installed, or the address or port cannot be
            used.
    """
    abilities_of(Path(folder))  # refuse early, before torch and Gradio are imported
    if waiting < 1:
        raise ServingError(f"--waiting is {waiting}; expected at least 1")
    if max_length is not None and max_length < LEAST_LENGTH:
        raise ServingError(f"--max-length is {max_length}; expected at least {LEAST_LENGTH}")
    with _listening(host, port) as listening:
        app = application(folder, max_length, waiting, host=host, proxy=proxy)
        from .connection import server_of

        shown = f"[{host}]" if ":" in host else host
        tell(f"{app.title} is at http://{shown}:{listening.getsockname()[1]}, until Ctrl-C")
        try:
            server_of(app, waiting=waiting, proxy=proxy).run(sockets=[listening])
        except KeyboardInterrupt:  # the usual end of a page
            return


def application(
    folder: str | Path, max_length: int | None = None, waiting: int = WAITING, *, host: str = HOST, proxy: bool = False
):
    """Return the page as an ASGI application, titled with the model's name.

    The arguments are those of `serve`; `host` is the address that your server listens on. Unlike `serve`, it does not
    limit unfinished requests: your server has to.
    """
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    with needs_extra("page", ServingError):
        import gradio as gr
        from fastapi import FastAPI
    from .guard import Guard, Origins
    from .served_model import LONGEST, ServedModel, too_long
    from .tabs import build

    served = ServedModel(folder, LONGEST if max_length is None else max_length)
    css = (Path(__file__).parent / "style.css").read_text(encoding="utf-8")
    page = build(served).queue(max_size=waiting, default_concurrency_limit=1, api_open=False)
    app = gr.mount_gradio_app(
        FastAPI(title=served.abilities.name, openapi_url=None), page, path="/", theme=_theme(gr), css=css,
        footer_links=[], run_history=False, show_error=False, ssr_mode=False, mcp_server=False, enable_monitoring=False,
        pwa=False,
    )  # fmt: skip
    longest_body = 65_536 + _FIELDS * _BYTES * served.longest_text
    message = too_long("the text", served.longest_text)
    app.add_middleware(Guard, longest_body=longest_body, sentence=message, origins=Origins(host, proxy))
    return app


def _theme(gr):
    """Return Gradio's plain theme with the visitor's own fonts; Gradio's fonts are downloaded and lack Chinese."""
    fonts = [gr.themes.Font(name) for name in _FONTS]
    theme = gr.themes.Soft(primary_hue="teal", neutral_hue="slate", font=fonts, font_mono=[gr.themes.Font("monospace")])
    return theme.set(
        block_title_padding="0", block_title_text_weight="500", block_title_background_fill="none",
        block_title_background_fill_dark="none", block_title_text_color="*neutral_600",
        block_title_text_color_dark="*neutral_300",
        # Contrast of 3 to 1 with its surroundings, so that the fields are visible (WCAG 2.2).
        input_border_width="1px", input_border_color="*neutral_500", input_border_color_dark="*neutral_400",
        input_border_color_focus="*primary_600", input_border_color_focus_dark="*primary_300",
    )  # fmt: skip


def _listening(host: str, port: int) -> socket.socket:
    if not 0 <= port < 65_536:
        raise ServingError(f"--port is {port}; expected 0 to 65535")
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except PermissionError:
        raise ServingError(f"port {port} is reserved for system services: give a --port of at least 1024") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ServingError(f"port {port} of {host} is in use: give another --port, or 0 for any") from None
        raise ServingError(
            f"{host} is not an address of this machine: give --host 127.0.0.1, or 0.0.0.0 for all addresses"
        ) from None
