"""Docstrings that are complete by themselves: what a head hands on to the bare model is described at the head, too."""

import inspect
import re
from collections.abc import Callable


def described_as_in(source: Callable, keywords: str, dimensions: str) -> Callable[[Callable], Callable]:
    """Decorator of a function that hands arguments on: its docstring also tells what `source`'s says of them.

    Arguments stand in the order of the signature, then, under `**kwargs`, those that come through it. What the
    function's own docstring says goes first. Where there are no docstrings (`python -OO`), none is made.

    Args:
        source: the function that gets the arguments.
        keywords: further ones that come through `**kwargs`, in the form of a docstring's `Args`.
        dimensions: what the letters in the shapes mean, told at the end.

    Raises:
        KeyError: where neither describes a parameter.

    ```python
    >>> @described_as_in(RoFormerModel.forward, "", "b batch, s sequence length")
    ... def forward(self, input_ids=None, labels=None, **kwargs):
    ...     '''Scores of a text.
    ...
    ...     Args:
    ...         labels: class ids, shape (b,).
    ...     '''
    >>> help(forward)  # describes input_ids, labels, and what the bare model takes besides
    ```
    """

    def describe(function: Callable) -> Callable:
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
    """What stands before `Args` in a docstring, each argument's entry by its name, and what stands after."""
    summary, _, rest = inspect.getdoc(function).partition("\n\nArgs:\n")
    entries, _, rest = rest.partition("\n\n")
    return summary, _by_name(entries), rest


def _by_name(entries: str) -> dict[str, str]:
    """An entry may be of several names: `start, end: what they are`."""
    return {
        name.strip(): entry
        for entry in re.split(r"\n+(?=    \S)", entries.strip("\n"))
        for name in entry.partition(":")[0].split(",")
        if name.strip()
    }
