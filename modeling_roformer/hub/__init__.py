"""The Hugging Face Hub: `push` publishes a model folder, `pull` fetches one and checks every byte of it."""

from .errors import HubError
from .pull import Pulled, pull
from .push import push

__all__ = ["HubError", "Pulled", "pull", "push"]
