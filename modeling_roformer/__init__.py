"""RoFormer, the transformer with rotary position embedding, for the Hugging Face Hub.

Importing this package registers it with transformers: `AutoConfig`, `AutoModel…`, `AutoTokenizer` and `pipeline` use it
for every RoFormer checkpoint. It reads no dictionary: the tokenizer does, when it first segments a text.

In the command `roformer`, models are imported and registered only when a public name is used, since importing torch and
transformers' models takes seconds.
"""

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

__version__ = "0.2.0"

# In a source tree these folders lie beside this one; an installation has them inside. A Python that is started in the
# tree finds this folder before any installation.
_TREE = Path(__file__).resolve().parent.parent
_ROOMS = {f"{__name__}.{room}" for room in ("conversion", "model_cards", "serving", "tokenization", "training")}


class _RoomFinder:
    """Import finder for the rooms of a source tree, and for no other folder beside them."""

    @staticmethod
    def find_spec(name: str, path=None, target=None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [str(_TREE)]) if name in _ROOMS else None


if not Path(__file__).with_name("tokenization").exists() and (_TREE / "setup.cfg").is_file():
    sys.meta_path.insert(0, _RoomFinder)  # before that of an editable installation, which may be of another tree


def _is_the_command() -> bool:
    """Return whether this process is the command: the program `roformer`, or `-m modeling_roformer`."""
    program = Path((getattr(sys, "argv", None) or [""])[0])
    if str(program) == "-m":  # Python sets the module's path only after importing its package
        module = sys.orig_argv[sys.orig_argv.index("-m") :][1:2]
        return module in ([__name__], [f"{__name__}.cli"])
    try:
        return program.name == "roformer" and b"modeling_roformer.cli" in program.read_bytes()
    except OSError:
        return False


if not _is_the_command():
    from .registration.public_names import *  # noqa: F403, its __all__ is this one
    from .registration.public_names import __all__ as __all__


def __getattr__(name: str):
    """Import and register everything when the command uses a public name."""
    if not name.startswith("_"):
        public = import_module(".registration.public_names", __name__)
        if name in public.__all__:
            return getattr(public, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, and those that Python sets."""
    public = import_module(".registration.public_names", __name__)
    return sorted({*public.__all__, *(name for name in globals() if name.startswith("__"))})
