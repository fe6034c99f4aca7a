"""What stands in the way where a line is not met, by its measure; shown only while that is so."""

from __future__ import annotations

NOTES: dict[str, str] = {
    "submit one by one": (
        "of about 0.9 ms a run, the client's own thread takes 0.33 ms, half of it in psycopg, whose Python layers "
        "asyncpg has in C. The server takes 0.22 ms: 0.1 for the run (routed to its month, two indexes), 0.05 for the "
        "guard that refuses a run in two places, the rest for the queue and the counter. What is left is the write to "
        "disk and the switches between processes, which everybody has."
    ),
    "submit in bulk": (
        "the server takes 15 us a run, and the client prepares while it does. 4 us of them go to the index by payload, "
        "without which no duplicate would be found, 3 to the queue and 7 to the run itself. Not overlapped are the "
        "first batch, the answers, the commit and the ring: 5 to 9 us."
    ),
    "submit → body, p50": (
        "the statement that makes the run leases it to the waiting worker and notifies it: one commit on disk, and two "
        "switches between processes. What is left is the client's share, the write to disk and the notification."
    ),
    "submit → body, p99": "the same way; its slow cases are slow writes to disk.",
    "whole lifecycle": (
        "pgbench has no client to speak of. Ours checks and hashes parameters, calls the task, and keeps an attempt, a "
        "result, counters and guards: 30 us of Python a run in the worker, which holds one core, 24 us in the server "
        "beside it, and 25 to 30 us to submit."
    ),
    "held snapshot, last tenth": (
        "without a snapshot the tenths of a drain differ as much: 0.97 (0.76..1.22) in the run of 2026-11-16."
    ),
    "canonical hash of 1 KB": (
        "sorted keys and SHA-256 alone take 1.5 to 1.7 times orjson's plain dump. The rest is the look at every value, "
        "in Python, that keeps NaN, whole doubles and foreign types from getting a text that RFC 8785 does not give "
        "them. It would take native code."
    ),
}
