"""What a command did, for people to read."""

from rich.table import Table
from rich.text import Text


def summary_table(rows: dict[str, str | None]) -> Table:
    """Two columns, a row for each entry that is not None; no part of a text is taken for rich markup."""
    table = Table(show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")  # names and paths are shown in full
    for name, value in rows.items():
        if value is not None:
            table.add_row(Text(name), Text(value))
    return table
