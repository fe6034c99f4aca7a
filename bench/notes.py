"""Why a goal is not met, by measure; shown only for goals that are not met."""

from __future__ import annotations

NOTES: dict[str, str] = {
    "submit one by one": (
        "of about 0.9 ms per run, the client's thread takes 0.33 ms, half of it in psycopg: its upper layers are "
        "Python, where asyncpg's are C. The server takes 0.22 ms: 0.1 for the run (routed to its month, two indexes), "
        "0.05 for the guard that rejects a run in two tables, and the rest for the queue and the counter. The "
        "remainder is the write to disk and the switches between processes, which every contender has."
    ),
    "submit in bulk": (
        "the server takes 15 µs per run, during which the client prepares the next batch. Of these, 4 µs are for the "
        "payload index, without which no duplicate would be found, 3 for the queue and 7 for the run itself. The "
        "first batch, the responses, the commit and the notification do not overlap with anything: 5 to 9 µs."
    ),
    "submit → body, p50": (
        "the path has two commits to disk, one for the run and one for its lease, and three switches between "
        "processes. On an idle machine, the two statements take 0.7 and 0.9 ms cold (0.2 and 0.3 hot). If the "
        "statement that creates a run also leased it to a waiting worker, the second commit would not be needed; this "
        "is not implemented."
    ),
    "submit → body, p99": "the path is the same; its slow cases are slow writes to disk, of which there are two.",
    "whole lifecycle": (
        "pgbench does almost no work in the client. Holdfast checks and hashes parameters, calls the task, and stores "
        "an attempt, a result, counters and guards: 30 µs of Python per run in the worker, which uses one core, 24 µs "
        "in the server at the same time, and 25 to 30 µs to submit."
    ),
    "held snapshot, last tenth": (
        "without a snapshot, the tenths of a drain differ by as much: 0.97 (0.76..1.22) in the run of 2026-11-16."
    ),
    "canonical hash of 1 KB": (
        "sorted keys and SHA-256 alone take 1.5 to 1.7 times as long as orjson's plain dump. The rest is a check of "
        "every value, which keeps NaN, whole doubles and foreign types from being written in a form that RFC 8785 "
        "does not define: 0.4 µs in C, and 4 µs in Python if no compiler was available."
    ),
}
