"""`python -m holdfast.rayjob RUN_ID NUMBER WORKER_ID`"""

from __future__ import annotations

import sys

from holdfast.domain.errors import HoldfastError
from holdfast.domain.ids import parse_id
from holdfast.domain.values import AttemptRef
from holdfast.rayjob import execute

USAGE = 2


def main(arguments: list[str]) -> int:
    match arguments:
        case [run_id, number, worker_id] if parse_id(run_id) and parse_id(worker_id) and number.isdigit():
            try:
                return execute(AttemptRef(run_id, int(number)), worker_id)
            except HoldfastError as error:
                sys.stderr.write(f"holdfast.rayjob: {error}\n")
                return 1
    sys.stderr.write("usage: python -m holdfast.rayjob RUN_ID NUMBER WORKER_ID\n")
    return USAGE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
