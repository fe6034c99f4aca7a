"""Our side's client: submits through `holdfast.Client`, as any program would."""

from __future__ import annotations

from typing import Any

from bench.board import here
from bench.programs.asking import chunks, serve
from bench.programs.holdfast_tasks import gather, noop, part
from holdfast import Client
from holdfast.jobs import sync as jobs

FAN_SECONDS = 120.0


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

        def fan(first: int, count: int) -> None:
            jobs.collect(jobs.map(part, range(count), chunk_size=1), into=gather, n=first)
            if not here().wait(first, FAN_SECONDS):
                raise TimeoutError(f"a map over {count} items was not collected within {FAN_SECONDS:g} s")

        serve(one, bulk, configure, fan)


if __name__ == "__main__":
    main()
