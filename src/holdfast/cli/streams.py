"""Standard streams that are closed when the program starts (`holdfast … >&-`)."""

from __future__ import annotations

import os
import sys


def open_missing_streams() -> None:
    """Open the null device for each closed standard stream.

    Otherwise the next file or connection to be opened would get the stream's descriptor, and receive what libraries and
    child processes write to it. `sys.stdin` stays None, so that a command that needs input can say that there is none.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDONLY if descriptor == 0 else os.O_WRONLY)  # the lowest one that is free
            os.set_inheritable(opened, True)
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
