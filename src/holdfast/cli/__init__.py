"""The command line: arguments and output only. What a command does is implemented where other interfaces use it too.

Data goes to stdout and everything else to stderr. Without a terminal there is no colour and nothing is cut off.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from holdfast.cli.stopping import open_missing_streams, unwind_on_signals


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the `holdfast` command and return its exit code."""
    unwind_on_signals(sys.argv[1:] if arguments is None else arguments)
    open_missing_streams()
    from holdfast.cli.running import run

    return run(arguments)
