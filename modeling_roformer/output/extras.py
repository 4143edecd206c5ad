"""How what an extra brings is installed."""


def install_command(extra: str) -> str:
    """Return the command that installs the package with an extra.

    It names the folder of the clone: no registry of packages has modeling_roformer, and what may appear in one under that
    name is somebody else's.
    """
    return f"pip install '.[{extra}]'"
