"""`roformer page` as a Space of the Hugging Face Hub."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

if find_spec("modeling_roformer") is None:
    sys.exit("the package modeling_roformer is missing: put it beside app.py, as README.md shows")

from modeling_roformer.hub import pull
from modeling_roformer.serving.page.server import serve

# Variable of the Space: one of its folders, or NAME/REPOSITORY on the Hub.
MODEL = os.environ.get("MODEL", "model")

folder = Path(MODEL)
if not folder.is_dir():
    if "/" not in MODEL:
        sys.exit(f"the folder {MODEL} does not exist: add it, or set the variable MODEL to NAME/REPOSITORY")
    folder = Path("models") / folder.name
    pull(MODEL, folder, force=True)
serve(folder, host="0.0.0.0", port=int(os.environ.get("GRADIO_SERVER_PORT", 7860)))
