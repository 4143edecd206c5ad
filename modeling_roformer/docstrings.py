"""Complete docstrings, where a head's also describes the arguments that it passes on to the bare model; and decorators
of transformers, typed so that they keep the type of a function."""

import inspect
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

Function = TypeVar("Function", bound=Callable)
if TYPE_CHECKING:  # the originals hide the type

    def can_return_tuple(function: Function) -> Function: ...
    def capture_outputs(function: Function) -> Function: ...
    def wraps(function: Function) -> Callable[[Callable], Function]: ...
else:
    from functools import wraps  # noqa: F401

    from transformers.utils.generic import can_return_tuple  # noqa: F401
    from transformers.utils.output_capturing import capture_outputs  # noqa: F401


def described_as_in(source: Callable, keywords: str, dimensions: str) -> Callable[[Function], Function]:
    """Return a decorator that adds to a function's docstring the arguments that it passes on to `source`.

    Arguments are in the order of the signature, followed by those of `**kwargs`. The function's own docstring overrides
    `source`'s. Without docstrings (`python -OO`), the decorator does nothing.

    Args:
        source: the function that gets the arguments.
        keywords: further keyword arguments, written as in a docstring's `Args`.
        dimensions: meaning of the letters in the shapes, for the end of the docstring.

    Raises:
        KeyError: neither docstring describes a parameter.

    ```python
    >>> @described_as_in(RoFormerModel.forward, "", "b batch, s sequence length")
    ... def forward(self, input_ids=None, labels=None, **kwargs):
    ...     '''Score a text.
    ...
    ...     Args:
    ...         labels: class ids, shape (b,).
    ...     '''
    >>> help(forward)  # describes input_ids, labels, and the bare model's other arguments
    ```
    """

    def describe(function: Function) -> Function:
        if not function.__doc__ or not source.__doc__:
            return function
        summary, own, rest = _parts(function)
        described = {**_parts(source)[1], **_by_name(keywords), **own}
        named = [name for name in inspect.signature(function).parameters if name not in ("self", "kwargs")]
        entries = [described.pop(name) for name in named]
        entries.append("    **kwargs: by name:")
        entries += [f"    {entry}".replace("\n", "\n    ") for entry in described.values()]
        end = f"Dimensions in the shapes: {dimensions}."
        function.__doc__ = "\n".join([summary, "", "Args:", *dict.fromkeys(entries), "", rest, "", end])
        return function

    return describe


def _parts(function: Callable) -> tuple[str, dict[str, str], str]:
    """Return a docstring's text before `Args`, the entry of each argument by name, and the text after."""
    summary, _, rest = (inspect.getdoc(function) or "").partition("\n\nArgs:\n")
    entries, _, rest = rest.partition("\n\n")
    return summary, _by_name(entries), rest


def _by_name(entries: str) -> dict[str, str]:
    """Return the entries of `Args` by name; an entry may have several names: `start, end: indices`."""
    return {
        name.strip(): entry
        for entry in re.split(r"\n+(?=    \S)", entries.strip("\n"))
        for name in entry.partition(":")[0].split(",")
        if name.strip()
    }
