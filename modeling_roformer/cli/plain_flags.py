"""Commands whose `--help` shows no `<bool>` beside a flag, which takes no value."""

import typer
from typer.core import TyperCommand, TyperGroup


class _PlainFlags:
    def get_params(self, ctx):
        """Return the command's options and arguments, its flags with an empty type."""
        params = super().get_params(ctx)  # pyright: ignore[reportAttributeAccessIssue]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return params


class _Command(_PlainFlags, TyperCommand):
    pass


class _Group(_PlainFlags, TyperGroup):
    pass


class App(typer.Typer):
    """Typer with such commands, and the help if none is given."""

    def __init__(self, **options):
        super().__init__(cls=_Group, no_args_is_help=True, **options)

    def command(self, name=None, **options):
        """Register the decorated function as a command."""
        return super().command(name, cls=_Command, **options)
