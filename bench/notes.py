"""Why a goal is not met, by its measure; shown only while it is not."""

from __future__ import annotations

NOTES: dict[str, str] = {
    "submit one by one": (
        "of about 0.4 ms per run, the client's thread takes 0.1 ms, mostly in Python and context switches; asyncpg "
        "is written in C. The server takes 0.18 ms, half of it for the commit, and a sixth of the rest for check "
        "constraints, which Postgres parses for each statement. The remainder is the write to disk, which every "
        "contender has: an insert of one number takes 0.16 to 0.21 ms."
        " Fifteen rounds (`python -m bench --only submit --rounds 15`) on the same day gave 1.00 (0.933..1.09)."
    ),
    "submit in bulk": (
        "the server takes 15 µs per run, during which the client prepares the next batch. Of these, 4 µs are for the "
        "payload index, which finds duplicates, 3 for the queue and 7 for the run itself. The first batch, the "
        "responses, the commit and the notification do not overlap with anything: 5 to 9 µs."
    ),
    "submit → body, p50": (
        "the statement that creates the run also leases it to a waiting worker and notifies that worker: one commit to "
        "disk, and two context switches. What remains is the client's share, the write to disk and the "
        "notification."
    ),
    "submit → body, p99": "the path is the same as for p50; the slow cases are slow writes to disk.",
    "whole lifecycle": (
        "pgbench does almost no work in the client. Holdfast checks and hashes parameters, calls the task, and stores "
        "an attempt, a result and counters, checked by guards. Per run, this takes 15 µs of Python in the worker and, "
        "at the same time, 18 µs in the server, and 14 µs to submit."
    ),
    "WAL per run": (
        "a run is a row that never changes, and its status is the table that another row is in: rows of `runs`, "
        "`ready`, `leases` and `attempts`, with eight index entries, and the row locks and deletions in two of these "
        "tables. Of about 1,450 bytes without full pages, the indexes of `runs` for lists take 160, and the second "
        "index of `attempts`, which keeps a run from ending twice, 80."
        " About 390 more bytes are whole pages: the drain begins with a checkpoint, and PostgreSQL 18 has checksums on "
        "by default, so that even a first read of a page can log it. On PostgreSQL 15, the ratio is lower."
    ),
    "idle worker, transactions": (
        "according to the server's log, an idle worker commits 0.24 transactions per second: a poll every eight "
        "seconds, a renewal every fifteen, and upkeep. During the measurement, it also prepares the four statements of "
        "a poll, once each, after their fifth execution; this takes two transactions per statement."
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
