"""The program `roformer`.

It is a module of its own, imported before the package: `modeling_roformer/__init__.py` then imports no models, which
takes seconds. The commands that use models take them from `modeling_roformer.registration`.
"""

from modeling_roformer.cli import main

__all__ = ["main"]
