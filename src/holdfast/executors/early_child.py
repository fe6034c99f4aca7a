"""A child process that is forked before its worker has imported what it needs for the database.

A worker for one run starts when its run already waits. So its child is forked as soon as the modules that both need are
imported: it then loads the tasks while its worker imports the rest, and needs no interpreter of its own. Nothing of the
user's code is loaded before the fork, and no thread exists yet.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from functools import partial

from holdfast.executors import child, guardian
from holdfast.executors.channel import SocketChannel
from holdfast.executors.forked import EarlyChild, Forked
from holdfast.executors.shared_state import SharedState, make_shared_state
from holdfast.observe.lines import LogFormat


def fork_child(modules: Sequence[str], form: LogFormat) -> EarlyChild:
    """Fork a child that loads these modules. Call it while there is one thread.

    In the child, this raises SystemExit once the child has ended.
    """
    worker = os.getpid()
    ours, theirs = socket.socketpair()
    descriptor, state = make_shared_state()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if not pid:
        ours.close()
        state.close()
        _detach()
        run = partial(_run_child, child.Early(modules, form))
        guardian.guard(theirs.detach(), descriptor, worker, form.json, run)
        raise SystemExit(0)
    theirs.close()
    os.close(descriptor)
    return EarlyChild(Forked(pid), ours, state)


def _run_child(early: child.Early, channel: int, state: SharedState, log: int) -> None:
    child.main(SocketChannel(socket.socket(fileno=channel)), state, log, early)


def _detach() -> None:
    """Do what `Spawned` does for the children that it starts: a session of their own, no input, one output."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
