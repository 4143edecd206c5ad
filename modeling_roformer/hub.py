"""The Hugging Face Hub: `push` publishes a model folder, `pull` fetches one and checks every byte of it."""

from .hub_errors import HubError
from .hub_pull import Pulled, pull
from .hub_push import push

__all__ = ["HubError", "Pulled", "pull", "push"]
