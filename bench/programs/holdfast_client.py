"""Our side's client: submits through `holdfast.Client`, as any program would."""

from __future__ import annotations

from typing import Any

from bench.programs.asking import chunks, serve
from bench.programs.holdfast_tasks import noop
from holdfast import Client


def main() -> None:
    filler = ""
    with Client() as client:

        def configure(command: dict[str, Any]) -> None:
            nonlocal filler
            filler = "x" * command.get("payload", 0)

        def parameters(number: int) -> dict[str, Any]:
            return {"n": number, "filler": filler} if filler else {"n": number}

        def one(first: int, count: int) -> None:
            for number in range(first, first + count):
                client.submit(noop, parameters(number))

        def bulk(first: int, count: int) -> None:
            for chunk in chunks(first, count):
                client.submit_many(noop, [parameters(number) for number in chunk])

        serve(one, bulk, configure)


if __name__ == "__main__":
    main()
