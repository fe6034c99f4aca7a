"""holdfast runs: the group, and the commands that read; `steering` has the others."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import exits, output, steering, values
from holdfast.cli.output import Column, rendered, worker, worker_names
from holdfast.cli.session import json_option, open_client
from holdfast.cli.watching import how_far, remark
from holdfast.documents.others import reason_document
from holdfast.documents.runs import attempt_document, event_document, log_document
from holdfast.domain.states import Status
from holdfast.domain.times import written

if TYPE_CHECKING:
    from holdfast.client import Run
    from holdfast.client.verifying import Check
    from holdfast.domain.records import AttemptRecord, EventRecord, LogRecord
    from holdfast.verbs.facades import Calls


@click.group()
def runs() -> None:
    """List, follow, cancel and retry runs."""


for command in steering.commands():
    runs.add_command(command)


RUNS: list[Column[Run]] = [
    Column("RUN", lambda run: run.id, is_id=True),
    Column("TASK", lambda run: run.model, wide=True),
    Column("STATUS", lambda run: run.status),
    Column("QUEUE", lambda run: run.queue, wide=True, spare=True),
    Column("ATTEMPTS", lambda run: run.record.attempts.replace(" of ", "/"), right=True, spare=True),
    Column("CREATED", lambda run: run.created_at),
    Column("FINISHED", lambda run: run.finished_at, spare=True),
    Column("REMARK", remark, wide=True),
]


@runs.command("list")
@click.option("--status", type=click.Choice(tuple(Status), case_sensitive=False), help="Only runs with this status.")
@click.option("--model", "--task", help="Only runs of this task.")
@click.option("--queue", help="Only runs of this queue.")
@click.option("--tag", help="Only runs with this tag.")
@click.option("--job", "job_id", help="Only runs of this job.")
@click.option("--limit", type=int, help="Maximum number of items.")
@click.option("--cursor", help="Continue after this run.")
@json_option
def list_runs(as_json: bool, **filters: Any) -> None:
    """List runs, newest first."""
    with open_client() as client:
        if filters["job_id"] is not None:
            filters["job_id"] = values.job_id(client, filters["job_id"])
        found = client.list(**filters)
    output.page(RUNS, found, lambda run: run.as_dict(), found.next_cursor, as_json)


@runs.command()
@click.argument("run_id")
@json_option
def show(run_id: str, as_json: bool) -> None:
    """Show a run."""
    with open_client() as client:
        run = client.get(values.run_id(client, run_id))
        names = worker_names(client) if run.lease_owner and not as_json else {}
    if as_json:
        output.document(run.as_dict())
        return
    output.fields(_shown(run, names))
    if run.status == "FAILED":
        output.note(steering.where_it_failed(run.id))


def _shown(run: Run, names: Mapping[str, str]) -> list[tuple[str, object]]:
    return [
        ("run", run.id),
        ("task", run.model),
        ("status", run.status),
        ("reason", run.reason),
        ("error", run.last_error),
        ("parameters", output.compact(run.parameters)),
        ("payload hash", run.payload_hash),
        ("queue", run.queue),
        ("priority", run.priority),
        ("tags", ", ".join(run.tags) or None),
        ("attempts", run.record.attempts),
        ("progress", how_far(run.progress) or None),
        ("created", run.created_at),
        ("not before", run.run_after),
        ("started", run.started_at),
        ("finished", run.finished_at),
        ("took", output.took(run.started_at, run.finished_at)),
        ("result", run.result_ref),
        ("worker", worker(run.lease_owner, names)),
        ("lease until", run.lease_expires_at),
        ("stop asked", run.cancel_requested_at),
        ("job", run.job_id),
        ("parent", run.parent_id),
        ("submitted by", run.submitted_by),
    ]


@runs.command()
@click.argument("run_id")
@click.option("--json", "as_json", is_flag=True, help="Has no effect: a result is always printed as JSON.")
def result(run_id: str, as_json: bool) -> None:
    """Print the result of a run that succeeded."""
    with open_client() as client:
        output.document(client.result(values.run_id(client, run_id)))


EVENTS: list[Column[EventRecord]] = [
    Column("SEQ", lambda event: event.seq, right=True),
    Column("AT", lambda event: event.at),
    Column("EVENT", lambda event: event.type),
    Column("FROM", lambda event: event.from_status),
    Column("TO", lambda event: event.to_status),
    Column("ATTEMPT", lambda event: event.attempt or None, right=True),
    Column("REASON", lambda event: event.reason, wide=True),
]


@runs.command()
@click.argument("run_id")
@json_option
def events(run_id: str, as_json: bool) -> None:
    """Show what happened to a run, in order."""
    with open_client() as client:
        found = client.events(values.run_id(client, run_id))
    output.listing(EVENTS, found, event_document, as_json)


def _attempt_columns(names: Mapping[str, str]) -> list[Column[AttemptRecord]]:
    # The name of the worker comes first in its column, which may be cut.
    return [
        Column("ATTEMPT", lambda attempt: attempt.number, right=True),
        Column("STATUS", lambda attempt: attempt.status),
        Column("WORKER", lambda attempt: worker(attempt.worker_id, names), wide=True),
        Column("EXECUTOR", lambda attempt: attempt.executor, spare=True),
        Column("ON RAY", lambda attempt: attempt.ray_submission_id or attempt.ray_actor_id, spare=True, wide=True),
        Column("STARTED", lambda attempt: attempt.started_at or attempt.claimed_at),
        Column("FINISHED", lambda attempt: attempt.finished_at),
        Column("EXIT", lambda attempt: attempt.exit_code, right=True, spare=True),
        Column("REASON", lambda attempt: attempt.reason),
        Column("ERROR", _error, wide=True),
    ]


def _error(attempt: AttemptRecord) -> str | None:
    return f"{attempt.error['class']}: {attempt.error['message']}" if attempt.error else None


@runs.command()
@click.argument("run_id")
@click.option("--traceback", is_flag=True, help="Also print the traceback of each failed attempt.")
@json_option
def attempts(run_id: str, traceback: bool, as_json: bool) -> None:
    """Show the attempts of a run."""
    with open_client() as client:
        run_id = values.run_id(client, run_id)
        found = client.attempts(run_id)
        names = {} if as_json else worker_names(client)
    if as_json:
        output.document({"items": [attempt_document(attempt) for attempt in found]})
        return
    output.table(_attempt_columns(names), found)
    failed = [attempt for attempt in found if attempt.error]
    for attempt in failed if traceback else ():
        traceback_text = (attempt.error or {}).get("traceback") or _error(attempt) or ""
        output.data(f"\nattempt {attempt.number}:\n{output.visible(traceback_text.rstrip())}")
    if not traceback and any((attempt.error or {}).get("traceback") for attempt in failed):
        output.hint(steering.where_it_failed(run_id))


WHY: list[Column[dict[str, Any]]] = [
    Column("CODE", lambda reason: reason["code"]),
    Column("WHY", lambda reason: reason["detail"]),
]


@runs.command()
@click.argument("run_id")
@json_option
def why(run_id: str, as_json: bool) -> None:
    """Show what a run is waiting for, the decisive reason first."""
    with open_client() as client:
        found = client.why(values.run_id(client, run_id))
        names = worker_names(client) if any(reason.code == "running" for reason in found) else {}
    when = written if as_json else output.when
    shown = [reason_document(reason) | {"detail": rendered(reason.detail, names, when)} for reason in found]
    output.listing(WHY, shown, dict, as_json)


LOOK_EVERY = 0.3
LEVELS = {"debug": "blue", "warning": "yellow", "error": "red"}


@runs.command()
@click.argument("run_id")
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the run has ended.")
@json_option
def logs(run_id: str, follow: bool, as_json: bool) -> None:
    """Print the log of a run. With --follow and --json, it is one JSON document per line."""
    with open_client() as client:
        lines = _lines(client, values.run_id(client, run_id), follow)
        if as_json and not follow:
            output.document({"items": [log_document(line) for line in lines]})
            return
        for line in lines:
            output.data(json.dumps(log_document(line)) if as_json else _log_line(line))
            sys.stdout.flush()


def _lines(client: Calls, run_id: str, follow: bool) -> Iterator[LogRecord]:
    """The lines so far, and those to come until the run has ended."""
    after = 0
    while True:
        # Read the run first: if it has ended by now, the log that is read next is complete.
        run = client.get(run_id)
        found = client.logs(run_id, after)
        yield from found
        if found:
            after = found[-1].seq
        elif run.status.final or not follow:
            return
        else:
            time.sleep(LOOK_EVERY)


def _log_line(line: LogRecord) -> str:
    level = output.styled(f"{line.level:<7}", fg=LEVELS.get(line.level))
    return f"{output.when(line.at)}  {line.attempt}  {level}  {output.visible(line.message)}"


DIFFERENCES: list[Column[dict[str, Any]]] = [
    Column("WHERE", lambda one: one["pointer"]),
    Column("FIRST", lambda one: output.compact(one["a"]) if "a" in one else None, wide=True),
    Column("SECOND", lambda one: output.compact(one["b"]) if "b" in one else None, wide=True),
]

CHECKS: list[Column[Check]] = [
    Column("", lambda check: "ok" if check.holds else "fail"),
    Column("CHECK", lambda check: check.name),
    Column("FOUND", lambda check: check.detail),
]


@runs.command()
@click.argument("first")
@click.argument("second")
@json_option
def diff(first: str, second: str, as_json: bool) -> None:
    """Show the differences between two runs.

    Compares the task, the parameters, the policies, and the results if both runs have one.
    """
    from holdfast.client.verifying import compare

    with open_client() as client:
        found = compare(client, values.run_id(client, first), values.run_id(client, second))
    if found or as_json:
        output.listing(DIFFERENCES, found, dict, as_json)
    else:
        output.note("no difference")


@runs.command()
@click.argument("run_id")
@json_option
def verify(run_id: str, as_json: bool) -> int:
    """Check that the record of a run is consistent.

    Checks the payload hash, the order of events and attempts, and the SHA-256 of the result.
    """
    from holdfast.client.verifying import verify as check_all

    with open_client() as client:
        found = check_all(client, values.run_id(client, run_id))
    whole = all(check.holds for check in found)
    if as_json:
        output.document({"verified": whole, "items": [check._asdict() for check in found]})
    else:
        output.table(CHECKS, found)
    return exits.OK if whole else exits.ERROR
