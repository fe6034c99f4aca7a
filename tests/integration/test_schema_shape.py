"""Constraints on rows, and that stored rows are never rewritten."""

from __future__ import annotations

import psycopg
import pytest

from holdfast.domain.states import Status
from tests.integration.test_schema_moves import (
    FACTS,
    REFUSALS,
    bring,
    connection,
    refused,
    timeline,
)
from tests.timeline import Timeline

__all__ = ["connection", "timeline"]

ATTEMPT = """with gone as (delete from holdfast.leases where run_id = %(run)s)
             insert into holdfast.attempts (number, worker_id, claimed_at, finished_at, run_id"""
STORED = ", status, outcome, result, result_ref, result_size, result_sha256) values"
HASH = "decode(repeat('ab', 32), 'hex')"
RUN = "insert into holdfast.runs (id, created_at, payload_hash, task, queue, parameters, priority) values"
KEY = "insert into holdfast.idempotency_keys (scope, key, run_id, payload_hash, task, created_at, expires_at) values"


@pytest.mark.parametrize(
    "row",
    [
        f", status, outcome) values (1, {FACTS}, %(run)s, 'SUCCEEDED', 'SUCCEEDED')",
        f", status, outcome, result) values (1, {FACTS}, %(run)s, 'FAILED', 'FAILED', '1')",
        f", status, outcome, result) values (1, {FACTS}, %(run)s, 'SUCCEEDED', 'FAILED', '1')",
        f", status, outcome, result) values (1, {FACTS}, %(run)s, 'SUCCEEDED', null, '1')",
        f", status, outcome) values (1, {FACTS}, %(run)s, 'FAILED', 'SUCCEEDED')",
        f", status, outcome) values (1, {FACTS}, %(run)s, 'CANCELLED', 'FAILED')",
        f", status, outcome) values (1, {FACTS}, %(run)s, 'DONE', 'FAILED')",
        f", status, outcome, result_ref) values (1, {FACTS}, %(run)s, 'SUCCEEDED', 'SUCCEEDED', 'file')",
        f"{STORED} (1, {FACTS}, %(run)s, 'SUCCEEDED', 'SUCCEEDED', '1', 'file', 1, {HASH})",
        f"{STORED} (1, {FACTS}, %(run)s, 'SUCCEEDED', 'SUCCEEDED', null, 'file', 1, 'short')",
        ", status, outcome) values (1, null, now(), now(), %(run)s, 'FAILED', 'FAILED')",
        ", status, outcome) values (1, gen_random_uuid(), null, now(), %(run)s, 'FAILED', 'FAILED')",
        f", status, outcome) values (0, {FACTS}, %(run)s, 'CANCELLED', 'CANCELLED')",
        f", status, outcome, reopened_at) values (1, {FACTS}, %(run)s, 'FAILED', 'FAILED', now())",
        f", status, outcome, reopened_at, reopened_by) values (1, {FACTS}, %(run)s, 'CANCELLED', null, now(), 'me')",
    ],
)
def test_inconsistent_attempt_is_refused(timeline: Timeline, connection: psycopg.Connection, row: str) -> None:
    run = bring(timeline, Status.RUNNING)
    refused(timeline, connection, run, [ATTEMPT + row])


COLUMNS = """status = 'LOST', outcome = 'CANCELLED', reason = 'other', finished_at = now(), claimed_at = now(),
             started_at = now(), worker_id = gen_random_uuid(), number = 7, exit_code = 1, executor = 'other',
             error = '{}', progress = '{}', details = '{}', result = '1', result_ref = 'x', result_size = 1"""


@pytest.mark.parametrize("column", [part.strip() for part in COLUMNS.split(",\n") for part in part.split(", ")])
@pytest.mark.parametrize("reopening", [False, True])
def test_an_ended_attempt_is_never_rewritten(
    timeline: Timeline, connection: psycopg.Connection, column: str, reopening: bool
) -> None:
    """Not even while it is reopened."""
    run = bring(timeline, Status.FAILED)
    queued = """with queued as (insert into holdfast.ready (run_id, rank_at, number, ord, queue)
                                values (%(run)s, now(), 2, 0, 'default')) """
    extra = ", reopened_at = now(), reopened_by = 'me'" if reopening else ""
    refused(
        timeline,
        connection,
        run,
        [f"{queued if reopening else ''} update holdfast.attempts set {column}{extra} where run_id = %(run)s"],
    )


def test_reopening_cannot_be_undone(timeline: Timeline, connection: psycopg.Connection) -> None:
    run = bring(timeline, Status.FAILED)
    timeline.retry(run)
    refused(
        timeline,
        connection,
        run,
        [
            "update holdfast.attempts set reopened_at = null, reopened_by = null where run_id = %(run)s",
            "update holdfast.attempts set reopened_by = 'other' where run_id = %(run)s",
        ],
    )


def test_a_run_is_never_rewritten(timeline: Timeline, connection: psycopg.Connection) -> None:
    run = bring(timeline, Status.PENDING)
    refused(
        timeline,
        connection,
        run,
        [
            "update holdfast.runs set parameters = '{}' where id = %(run)s",
            "update holdfast.runs set payload_hash = decode(repeat('00', 32), 'hex') where id = %(run)s",
            "update holdfast.ready set ord = -100 where run_id = %(run)s",
        ],
    )


def test_lease_cannot_be_rewritten(timeline: Timeline, connection: psycopg.Connection) -> None:
    run = bring(timeline, Status.RUNNING)
    timeline.cancel(run)
    refused(
        timeline,
        connection,
        run,
        [
            "update holdfast.leases set worker_id = gen_random_uuid() where run_id = %(run)s",
            "update holdfast.leases set number = 2 where run_id = %(run)s",
            "update holdfast.leases set excused = 1 where run_id = %(run)s",
            "update holdfast.leases set claimed_at = now() where run_id = %(run)s",
            "update holdfast.leases set cancel_requested_at = null where run_id = %(run)s",
            "update holdfast.leases set cancel_requested_at = now() where run_id = %(run)s",
        ],
    )


def test_events_are_only_added(timeline: Timeline, connection: psycopg.Connection) -> None:
    run = bring(timeline, Status.RUNNING)
    timeline.cancel(run)
    refused(
        timeline,
        connection,
        run,
        [
            "update holdfast.events set reason = 'other' where run_id = %(run)s",
            "delete from holdfast.events where run_id = %(run)s",
        ],
    )


@pytest.mark.parametrize(
    "sql",
    [
        f"{RUN} (gen_random_uuid(), now(), {HASH}, 't', 'q', '{{}}', 101)",
        f"{RUN} (gen_random_uuid(), now(), 'short', 't', 'q', '{{}}', 0)",
        f"{RUN} (gen_random_uuid(), now(), {HASH}, '', 'q', '{{}}', 0)",
        f"{RUN} (gen_random_uuid(), now(), {HASH}, 't', '', '{{}}', 0)",
        f"{KEY} ('', '', gen_random_uuid(), '', 't', now(), now() + interval '1 hour')",
        f"{KEY} ('', 'k', gen_random_uuid(), '', 't', now(), now())",
        "insert into holdfast.ready (run_id, rank_at, number, ord, queue) values (gen_random_uuid(), now(), 0, 0, 'q')",
        "insert into holdfast.queues (name, created_at, paused_at) values ('q', now(), now())",
    ],
)
def test_values_out_of_range_are_refused(connection: psycopg.Connection, sql: str) -> None:
    with pytest.raises(REFUSALS):
        connection.execute(sql)
