"""Serve the page of a saved model."""

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

from ...output.extras import needs_extra
from ..errors import ServingError
from .abilities import abilities_of

HOST, PORT = "127.0.0.1", 7860  # this machine alone, on Gradio's port
WAITING, LEAST_LENGTH = 64, 16
_FONTS = ("system-ui", "Noto Sans CJK SC", "Source Han Sans SC", "PingFang SC", "Microsoft YaHei", "sans-serif")
_FIELDS, _BYTES = 3, 6  # of a question: a page has up to three fields, and JSON may write a character as \uXXXX


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
        host: address of this machine to listen on; "0.0.0.0" is all of them, for other machines.
        port: 0 is any that is free.
        max_length: longest input in tokens, 4,096 where None.
        waiting: questions that wait in the queue; one more is told to come again.
        proxy: a web server stands before the page and hands on the visitors' `Host`: the page then answers to any name,
            and believes the headers `X-Forwarded-…`.
        tell: called with the page's address once it is there.

    Raises:
        ServingError: one sentence, if there is no page for the folder, no Gradio, or no such address and port.
    """
    abilities_of(Path(folder))  # what cannot be served is refused at once, without torch and Gradio
    if waiting < 1:
        raise ServingError(f"--waiting is {waiting}, but must be at least 1")
    if max_length is not None and max_length < LEAST_LENGTH:
        raise ServingError(f"--max-length is {max_length}, but must be at least {LEAST_LENGTH}")
    with _listening(host, port) as listening:
        app = application(folder, max_length, waiting, host=host, proxy=proxy)
        from .connection import server_of

        shown = f"[{host}]" if ":" in host else host
        tell(f"{app.title} is at http://{shown}:{listening.getsockname()[1]}, until Ctrl-C")
        try:
            server_of(app, waiting=waiting, proxy=proxy).run(sockets=[listening])
        except KeyboardInterrupt:  # how a page ends
            return


def application(
    folder: str | Path, max_length: int | None = None, waiting: int = WAITING, *, host: str = HOST, proxy: bool = False
):
    """Return the page as an ASGI application, whose title is the model's name.

    Arguments as in `serve`; `host` is the address that your server listens on. What `serve` does against requests that
    do not end is your server's part.
    """
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    with needs_extra("page", ServingError):
        import gradio as gr
        from fastapi import FastAPI
    from .drawing import CSS
    from .guard import Guard
    from .origins import Origins
    from .served_model import LONGEST, ServedModel, too_long
    from .tabs import build

    served = ServedModel(folder, LONGEST if max_length is None else max_length)
    page = build(served).queue(max_size=waiting, default_concurrency_limit=1, api_open=False)
    app = gr.mount_gradio_app(
        FastAPI(title=served.abilities.name, openapi_url=None), page, path="/", theme=_theme(gr), css=CSS, footer_links=[], run_history=False,
        show_error=False, ssr_mode=False, mcp_server=False, enable_monitoring=False, pwa=False,
    )  # fmt: skip
    longest_body = 65_536 + _FIELDS * _BYTES * served.longest_text
    app.add_middleware(
        Guard,
        longest_body=longest_body,
        sentence=too_long("the text", served.longest_text),
        origins=Origins(host, proxy),
    )
    return app


def _theme(gr):
    """Gradio's plain theme in fonts that the visitor's machine has: its own are fetched, and have no Chinese."""
    fonts = [gr.themes.Font(name) for name in _FONTS]
    theme = gr.themes.Soft(primary_hue="teal", neutral_hue="slate", font=fonts, font_mono=[gr.themes.Font("monospace")])
    return theme.set(
        block_title_padding="0", block_title_text_weight="500", block_title_background_fill="none",
        block_title_background_fill_dark="none", block_title_text_color="*neutral_600",
        block_title_text_color_dark="*neutral_300",
        # Three times as dark or light as what is around it, so that everyone sees where to write.
        input_border_width="1px", input_border_color="*neutral_500", input_border_color_dark="*neutral_400",
        input_border_color_focus="*primary_600", input_border_color_focus_dark="*primary_300",
    )  # fmt: skip


def _listening(host: str, port: int) -> socket.socket:
    if not 0 <= port < 65_536:
        raise ServingError(f"--port is {port}, but must be between 0 and 65535")
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except PermissionError:
        raise ServingError(f"port {port} is reserved for the system's own services: name one from 1024 on") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ServingError(f"port {port} of {host} is in use: name another with --port, or 0 for any") from None
        raise ServingError(f"{host} is no address of this machine: give --host 127.0.0.1, or 0.0.0.0 for all") from None
