"""The server of the page."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

from modeling_roformer.output.extras import needs_extra

from ..errors import ServingError
from .model_info import MAX_LENGTH, model_info_of

HOST = "127.0.0.1"  # only this machine
PORT = 7860  # Gradio's
MAX_WAITING = 64  # requests in the queue
_CSS = ".gradio-container { width: 100%; max-width: 1160px !important; margin: 0 auto !important; }"
_FONTS = ("system-ui", "Noto Sans CJK SC", "Source Han Sans SC", "PingFang SC", "Microsoft YaHei", "sans-serif")


def serve(
    folder: str | Path,
    *,
    host: str = HOST,
    port: int = PORT,
    max_length: int = MAX_LENGTH,
    waiting: int = MAX_WAITING,
    tell: Callable[[str], None] = print,
) -> None:
    """Serve the page until the process is interrupted.

    Args:
        folder: a saved model.
        host: address of this machine to listen on; "0.0.0.0" listens on all of them, for other machines.
        port: 0 selects a free port.
        max_length: longest input in tokens.
        waiting: maximum requests in the queue; further ones are refused.
        tell: called with the page's address when it is ready.

    Raises:
        ServingError: the page cannot show the folder's model, or Gradio is not installed.
        OSError: the address or port cannot be used.
    """
    model_info_of(Path(folder))  # refuse early, before torch and Gradio are imported
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listening:
        app = application(folder, max_length, waiting)
        import uvicorn  # Gradio brings it

        shown = f"[{host}]" if ":" in host else host
        tell(f"{app.title} is at http://{shown}:{listening.getsockname()[1]}, until Ctrl-C")
        try:
            config = uvicorn.Config(app, ws="none", log_level="critical", timeout_graceful_shutdown=1)
            uvicorn.Server(config).run(sockets=[listening])
        except KeyboardInterrupt:  # the usual end of a page
            return


def application(folder: str | Path, max_length: int = MAX_LENGTH, waiting: int = MAX_WAITING):
    """Return the page as an ASGI application, titled with the model's name. The arguments are described in `serve`."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    with needs_extra("page", ServingError):
        import gradio as gr
        from fastapi import FastAPI
    from .served_model import ServedModel
    from .tabs import build

    served = ServedModel(folder, max_length)
    page = build(served).queue(max_size=waiting, default_concurrency_limit=1, api_open=False)
    return gr.mount_gradio_app(
        FastAPI(title=served.info.name, openapi_url=None),
        page,
        path="/",
        theme=_theme(gr),
        css=_CSS,
        footer_links=[],
        run_history=False,
        show_error=False,
        ssr_mode=False,
        mcp_server=False,
        enable_monitoring=False,
        pwa=False,
        max_file_size=1,  # no tab takes files
    )


def _theme(gr):
    """Return Gradio's plain theme with the visitor's own fonts; Gradio's fonts are downloaded and lack Chinese."""
    fonts = [gr.themes.Font(name) for name in _FONTS]
    theme = gr.themes.Soft(primary_hue="teal", neutral_hue="slate", font=fonts, font_mono=fonts)
    return theme.set(
        block_title_padding="0",
        block_title_text_weight="500",
        block_title_background_fill="none",
        block_title_background_fill_dark="none",
        block_title_text_color="*neutral_600",
        block_title_text_color_dark="*neutral_300",
        # Contrast of 3 to 1 with its surroundings, so that the fields are visible (WCAG 2.2).
        input_border_width="1px",
        input_border_color="*neutral_500",
        input_border_color_dark="*neutral_400",
        input_border_color_focus="*primary_600",
        input_border_color_focus_dark="*primary_300",
    )
