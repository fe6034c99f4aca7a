"""Why a goal is not met, by its measure; shown only while it is not."""

from __future__ import annotations

NOTES: dict[str, str] = {
    "submit one by one": (
        "of about 0.9 ms per run, the client's own thread takes 0.33 ms, half of it in psycopg, which does in Python "
        "what asyncpg does in C. The server takes 0.22 ms: 0.1 for the run (routed to its month, two indexes), 0.05 "
        "for the guard that rejects a run in two places, the rest for the queue and the counter. The remainder is the "
        "write to disk and the switches between processes, which all contenders have."
    ),
    "submit in bulk": (
        "the server takes 15 us per run, while the client prepares the next batch. Of these, 4 us are for the index by "
        "payload, which finds duplicates, 3 for the queue and 7 for the run itself. The first batch, the answers, the "
        "commit and the notification do not overlap: 5 to 9 us."
    ),
    "submit → body, p50": (
        "the statement that makes the run leases it to the waiting worker and notifies it: one commit on disk, and two "
        "switches between processes. What is left is the client's share, the write to disk and the notification."
    ),
    "submit → body, p99": "the same way; its slow cases are slow writes to disk.",
    "whole lifecycle": (
        "pgbench has almost no client. Holdfast checks and hashes parameters, calls the task, and stores an attempt, a "
        "result and counters under guards: 30 us of Python per run in the worker, which uses one core, 24 us in the "
        "server meanwhile, and 25 to 30 us to submit."
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
