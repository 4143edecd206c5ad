"""The Hugging Face Hub: `push` publishes a model folder, `pull` fetches one and checks every byte."""

from typing import TYPE_CHECKING

from ..output.lazy_names import lazy_names

if TYPE_CHECKING:
    from .download import Pulled, pull
    from .errors import HubError
    from .upload import push

__all__ = ["HubError", "Pulled", "pull", "push"]

__getattr__, __dir__ = lazy_names(
    __name__, {"HubError": "errors", "Pulled": "download", "pull": "download", "push": "upload"}
)
