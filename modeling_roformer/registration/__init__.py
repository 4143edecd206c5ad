"""transformers, with this package registered. The command's code takes Auto classes and pipelines only from here.

>>> from modeling_roformer.registration import registered_transformers
>>> registered_transformers.AutoModel.from_pretrained("roformer-mini-zh")
"""

import transformers as registered_transformers

from . import public_names as public_names  # registers the package

__all__ = ["registered_transformers"]
