"""Commands whose `--help` shows no `<bool>` beside a flag, which takes no value."""

from typer import Typer
from typer.core import TyperCommand, TyperGroup


class _PlainFlags:
    def get_params(self, ctx):
        """Return the command's parameters, its flags with an empty type."""
        params = super().get_params(ctx)  # pyright: ignore[reportAttributeAccessIssue]
        for flag in (param for param in params if getattr(param, "is_flag", False)):
            flag.metavar = ""
        return params


class Command(_PlainFlags, TyperCommand):
    """A command."""


class Group(_PlainFlags, TyperGroup):
    """A group of commands."""


class App(Typer):
    """Typer with such commands."""

    def command(self, name=None, **options):
        """Register the decorated function as a command."""
        return super().command(name, cls=Command, **options)
