"""Extension of griffe, which reads docstrings for mkdocstrings.

Examples become blocks of code, arguments that share an entry get one each, and configurations get the signature that
transformers gives them on import.
"""

import re

from griffe import Decorator, ExprName, Extension

FENCE = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
# From a line that begins with >>> to the next empty line.
EXAMPLE = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?P=indent)\S.*)*", re.MULTILINE)
ARGUMENTS = re.compile(r"^Args:\n(?: {4}.*(?:\n|\Z))+", re.MULTILINE)
SHARED_ENTRY = re.compile(r"^ {4}(?P<names>\w+(?:, \w+)+)(?P<text>:.*(?:\n {5}.*)*)", re.MULTILINE)


def with_fenced_examples(docstring: str) -> str:
    """Return a docstring whose examples are blocks of code. Examples in blocks or below `Example:` stay as they are.

    ```python
    >>> print(with_fenced_examples(">>> 1 + 1\\n2").replace("`", "'"))
    '''pycon
    >>> 1 + 1
    2
    '''
    ```
    """
    if FENCE.search(docstring) or re.search(r"^ *Examples?:$", docstring, re.MULTILINE):
        return docstring
    return EXAMPLE.sub(lambda found: f"{found['indent']}```pycon\n{found[0]}\n{found['indent']}```", docstring)


def with_single_arguments(docstring: str) -> str:
    """Return a docstring in which each argument has an entry of its own.

    ```python
    >>> print(with_single_arguments("Args:\\n    first, second: the results"))
    Args:
        first: the results
        second: the results
    ```
    """

    def one_each(entry: re.Match) -> str:
        return "\n".join(f"    {name}{entry['text']}" for name in entry["names"].split(", "))

    return ARGUMENTS.sub(lambda section: SHARED_ENTRY.sub(one_each, section[0]), docstring)


class Docstrings(Extension):
    """Changes to what griffe reads."""

    def on_object(self, *, obj, **kwargs) -> None:
        """Change the docstring of an object."""
        if obj.docstring:
            obj.docstring.value = with_single_arguments(with_fenced_examples(obj.docstring.value))

    def on_class_instance(self, *, cls, **kwargs) -> None:
        """Mark a class under `@strict` as a dataclass, since transformers makes a dataclass of each configuration."""
        if any(str(decorator.value) == "strict" for decorator in cls.decorators):
            dataclass = ExprName("dataclasses.dataclass")
            cls.decorators.append(Decorator(dataclass, lineno=cls.lineno, endlineno=cls.lineno))
