"""`roformer page` as a Space of the Hugging Face Hub."""

import os
from pathlib import Path

from modeling_roformer.hub import pull
from modeling_roformer.serving.page.server import serve

MODEL = os.environ.get(
    "MODEL", "model"
)  # a folder of the Space, or NAME/REPOSITORY on the Hub: a variable of the Space

folder = Path(MODEL)
if not folder.is_dir():
    folder = Path("models") / folder.name
    pull(MODEL, folder, force=True)
serve(folder, host="0.0.0.0", port=int(os.environ.get("GRADIO_SERVER_PORT", 7860)))
