"""transformers, with this package registered. The command's code takes Auto classes and pipelines only from here.

>>> from ..registration import transformers
>>> transformers.AutoModel.from_pretrained("roformer-mini-zh")
"""

import transformers as transformers

from . import public_names as public_names  # registers the package
