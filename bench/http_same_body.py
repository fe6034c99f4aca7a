"""Many who post the same body at once make one run, round after round.

python -m bench.http_same_body [CLIENTS] [ROUNDS]
"""

from __future__ import annotations

import asyncio
import sys
from time import perf_counter
from urllib.parse import urlsplit

import psycopg

from bench.http_load import Outcome, drive, post
from bench.http_stage import stage


def round_of(url: str, number: int, clients: int) -> Outcome:
    body = b'{"model":"mock","parameters":{"payload":{"round":%d}}}' % number
    request = post(urlsplit(url).netloc, "/runs", body)
    left = iter([request] * clients)
    return asyncio.run(drive(url, clients, lambda: next(left, None)))


def main() -> None:
    clients, rounds = ([int(word) for word in sys.argv[1:]] + [64, 100][len(sys.argv) - 1 :])[:2]
    with stage() as here:
        began, statuses = perf_counter(), Outcome().statuses
        for number in range(rounds):
            statuses += round_of(here.url, number, clients).statuses
        seconds = perf_counter() - began
        with psycopg.connect(here.database_url) as connection:
            made = connection.execute("select count(*) from holdfast.runs").fetchone()
    print(
        f"{clients} clients x {rounds} rounds: {made[0] if made else 0} runs, answers {dict(statuses)}, {seconds:.0f} s"
    )
    assert made == (rounds,), "the goal is one run for each round"
    assert statuses == {201: rounds, 200: rounds * (clients - 1)}


if __name__ == "__main__":
    main()
