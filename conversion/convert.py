"""Name of `converter` in version 0.1, kept for `from modeling_roformer.conversion.convert import convert`."""

import sys
from typing import Any

from .converter import convert

# Importing a submodule sets it as an attribute of its package. There, `convert` must stay the function.
_function: Any = convert
_function.convert = convert
sys.modules[__name__] = _function
