"""The Hugging Face Hub: `push` publishes a model folder, `pull` fetches one and checks every byte.

`bundle` makes locally what `push` publishes with code.
"""

from typing import TYPE_CHECKING

from modeling_roformer.output.lazy_names import lazy_names

if TYPE_CHECKING:
    from .bundling import bundle
    from .download import Pulled, pull
    from .errors import HubError
    from .upload import push

__all__ = ["HubError", "Pulled", "bundle", "pull", "push"]
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "bundling": ("bundle",),
        "download": ("Pulled", "pull"),
        "errors": ("HubError",),
        "upload": ("push",),
    },
)
