"""Extension of griffe, which reads the docstrings for mkdocstrings: examples become blocks of code, and configurations get the
signature that transformers gives them when they are imported."""

import re

from griffe import Decorator, ExprName, Extension

FENCE = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
# From a line that begins with >>> to the next empty line.
EXAMPLE = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?P=indent)\S.*)*", re.MULTILINE)


def with_fenced_examples(docstring: str) -> str:
    """Return a docstring whose examples are blocks of code. Those in blocks or below `Example:` remain as they are.

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


class Docstrings(Extension):
    """Changes of what griffe reads."""

    def on_object(self, *, obj, **kwargs) -> None:
        """Make blocks of code of an object's examples."""
        if obj.docstring:
            obj.docstring.value = with_fenced_examples(obj.docstring.value)

    def on_class_instance(self, *, cls, **kwargs) -> None:
        """Mark a class under `@strict` as a dataclass, which transformers makes of each configuration."""
        if any(str(decorator.value) == "strict" for decorator in cls.decorators):
            dataclass = ExprName("dataclasses.dataclass")
            cls.decorators.append(Decorator(dataclass, lineno=cls.lineno, endlineno=cls.lineno))
