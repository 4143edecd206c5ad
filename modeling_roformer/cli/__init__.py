"""The command line: `roformer COMMAND …`, or `python -m modeling_roformer COMMAND …`.

A command prints its result on stdout and exits with code 0, or prints one sentence on stderr and exits with code 1 (2
for a mistyped command). ROFORMER_DEBUG=1 shows the traceback of an error.
"""

import os
import sys


def main() -> None:
    """Run the command `roformer`."""
    if reconfigure := getattr(sys.stdout, "reconfigure", None):  # a terminal's encoding may lack characters
        reconfigure(errors="backslashreplace")
    try:
        from .commands import app  # here, since Ctrl-C may interrupt it

        app(prog_name="roformer")  # also for `python -m`, and for the shell's completion
    except (SystemExit, KeyboardInterrupt) as ended:
        if getattr(ended, "code", 130) != 130:  # typer turns Ctrl-C into 130, once it has started
            raise
        print(
            "roformer: interrupted; no incomplete output was left, and embed and predict resume by the same command",
            file=sys.stderr,
        )
        sys.exit(130)
    except Exception as error:  # of any kind: a user of the command sees a sentence, and no traceback
        if os.environ.get("ROFORMER_DEBUG"):
            raise
        from modeling_roformer.output.console import sentence_of

        print(f"roformer: {sentence_of(error)}", file=sys.stderr)
        sys.exit(1)
