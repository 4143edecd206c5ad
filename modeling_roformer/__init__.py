"""RoFormer, the transformer with rotary position embedding, for Hugging Face transformers.

Import this package before you load a checkpoint. The import registers it with transformers: `AutoConfig`, `AutoModel…`,
`AutoTokenizer` and `pipeline` then use it for every RoFormer checkpoint.

    import modeling_roformer
    from transformers import pipeline

    pipeline("fill-mask", model="FOLDER")("今天[MASK]很好。")

Import a class by its name from here, as in `from modeling_roformer import RoFormerForMaskedLM`: the class of this name
in transformers stays transformers' own. Other tasks have packages of their own, each with its own `help`:

    modeling_roformer.conversion    checkpoints of bert4keras, PyTorch and Keras become folders for `from_pretrained`
    modeling_roformer.hub           push to the Hugging Face Hub and pull from it
    modeling_roformer.training      what the scripts in examples/ share: data, pre-training, fine-tuning, retrieval
    modeling_roformer.serving       export to ONNX, vectors of a corpus, a page in the browser

`roformer --help` lists the same as commands, and docs/ of the clone has a page for each task.
"""

# The command `roformer` starts without models (see `roformer_command.py`), since importing torch and transformers takes
# seconds. In its process the package is registered later: when a command imports `registration`, or at the first use of
# a public name. The scripts of `examples/` start in the same way, to check their arguments first. The import does not
# read jieba's dictionary either: the tokenizer reads it when it first segments a text.

import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

__version__ = "0.4.0"

# In a source tree these folders lie beside this one; an installation has them inside. A Python that is started in the
# tree finds this folder before any installation.
_TREE = Path(__file__).resolve().parent.parent


class _RoomFinder:
    """Import finder for the rooms of a source tree: the folders beside this one that have an `__init__.py`."""

    @staticmethod
    def find_spec(name: str, path=None, target=None) -> ModuleSpec | None:
        package, _, room = name.rpartition(".")
        is_room = package == __name__ != room and (_TREE / room / "__init__.py").is_file()
        return PathFinder.find_spec(name, [str(_TREE)]) if is_room else None


if not Path(__file__).with_name("tokenization").exists() and (_TREE / "setup.cfg").is_file():
    sys.meta_path.insert(0, _RoomFinder)  # before that of an editable installation, which may be of another tree


if "roformer_command" not in sys.modules:
    from .registration.public_names import *  # noqa: F403, its __all__ is this one
    from .registration.public_names import __all__ as __all__

    def __dir__() -> list[str]:
        """Return the public names, and those that Python sets."""
        return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})

else:

    def __getattr__(name: str):
        """Return a public name, and register the package. Public names are classes; a room's name is in lower case."""
        if not name[0].isupper():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .registration import public_names

        return getattr(public_names, name)
