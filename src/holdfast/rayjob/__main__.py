"""`python -m holdfast.rayjob RUN_ID NUMBER WORKER_ID`"""

from __future__ import annotations

import gc
import sys

from holdfast.domain.errors import HoldfastError
from holdfast.domain.ids import parse_id
from holdfast.domain.values import AttemptRef
from holdfast.executors.early_child import fork_child
from holdfast.observe.logs import log_format
from holdfast.runtime.settings import load

USAGE = 2


def main(arguments: list[str]) -> int:
    match arguments:
        case [run_id, number, worker_id] if parse_id(run_id) and parse_id(worker_id) and number.isdigit():
            try:
                return _start(AttemptRef(run_id, int(number)), worker_id)
            except HoldfastError as error:
                sys.stderr.write(f"holdfast.rayjob: {error}\n")
                return 1
    sys.stderr.write("usage: python -m holdfast.rayjob RUN_ID NUMBER WORKER_ID\n")
    return USAGE


def _start(ref: AttemptRef, claimed_by: str) -> int:
    settings = load()
    form = log_format(settings.log_format, settings.log_level)
    child = fork_child(("holdfast.tasks", *settings.tasks), form)
    # Imported after the fork, while the child loads the tasks. Imports leave no garbage to collect.
    gc.disable()
    from holdfast.rayjob.execution import execute

    gc.enable()
    return execute(settings, child, ref, claimed_by)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
