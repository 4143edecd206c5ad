"""The Hugging Face Hub: `push` publishes a model folder, `pull` fetches one and checks every byte of it."""

from typing import TYPE_CHECKING

from ..lazy_package import import_lazily

if TYPE_CHECKING:
    from .errors import HubError
    from .pull import Pulled, pull
    from .push import push

__all__ = ["HubError", "Pulled", "pull", "push"]

import_lazily(__name__, {"HubError": "errors", "Pulled": "pull", "pull": "pull", "push": "push"})
