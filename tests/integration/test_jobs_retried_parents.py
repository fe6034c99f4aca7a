"""Parents that are attempted again: what an earlier attempt stored is found, and whatever differs is named.

A parent follows a script of calls, a different one on each attempt. A join that succeeds has the results of every slice
of its map, in every one of these jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

import holdfast.jobs as jobs
from holdfast import HoldfastError, Retry, current_run, task
from holdfast.client import shared
from holdfast.jobs import View, sync
from holdfast.jobs.datasets import PostgresTable
from holdfast.runtime.settings import load
from holdfast.testing.databases import scratch
from tests.integration.jobs_support import disagreements
from tests.integration.source_samples import LOAD, MAP, Object, defined
from tests.integration.worker_support import Stage

AGAIN = Retry(max_attempts=3, delays=(0.01,))

Call = dict[str, Any]
Script = list[Call]


class Stumbled(Exception):
    """The attempt crashes here."""


@task("retried.follow", executor="inline", retry=AGAIN)
def follow(scripts: list[Script]) -> str:
    """Follow the script of this attempt, or the last script."""
    handles: list[Any] = []
    for call in scripts[min(current_run().attempt, len(scripts)) - 1]:
        try:
            _do(dict(call), handles)
        except HoldfastError:
            if "swallowed" not in call:
                raise
    return "done"


def _do(call: Call, handles: list[Any]) -> None:
    call.pop("swallowed", None)
    match call:
        case {"map": rows, **rest}:
            options = {name: rest.pop(name) for name in ("key",) if name in rest}
            size, into = rest.pop("size", 1), rest.pop("task", "retried.slice")
            dataset = (
                PostgresTable(**rows) if isinstance(rows, dict) else range(rows) if isinstance(rows, int) else rows
            )
            handles.append(sync.map(into, dataset, size, options=options, **rest))
        case {"collect": into, **rest}:
            sync.collect(handles[-1], into=into, **rest)
        case {"add": number, **rest}:
            sync.add_task_to_current_job(rest.pop("task", "retried.leaf"), {"number": number}, **rest)
        case {"submit": number, **rest}:
            current_run().submit("retried.leaf", {"number": number}, **rest)
        case {"stumble": _}:
            raise Stumbled("on purpose")


@task("retried.slice", executor="inline", retry=AGAIN)
def slice_(view: View, offset: int = 0) -> int:
    return sum(row["id"] if isinstance(row, dict) else row for row in view.read()) + offset


@task("retried.other_slice", executor="inline", retry=AGAIN)
def other_slice(view: View, offset: int = 0) -> int:
    return -1


@task("retried.join", executor="inline", retry=AGAIN)
def join(results: Sequence[int], bonus: int = 0) -> list[int]:
    return [*results, bonus]


@task("retried.leaf", executor="inline", retry=AGAIN)
def leaf(number: int) -> int:
    return number


@task("retried.other_leaf", executor="inline", retry=AGAIN)
def other_leaf(number: int) -> int:
    return number


# The inputs of the samples for each attempt, and the number of calls after which the first attempt crashes.
ROWS: list[int] = []
CALLS: list[int] = []


@task("retried.map_sample", executor="inline", retry=AGAIN)
async def map_sample() -> dict[str, Any]:
    rows = ROWS[min(current_run().attempt, len(ROWS)) - 1]
    found: dict[str, Any] = await defined(MAP, "map")("retried.chunk", Object("tbl_abc", rows))
    return found


@task("retried.load_sample", executor="inline", retry=AGAIN)
async def load_sample() -> None:
    source = f"v{ROWS[min(current_run().attempt, len(ROWS)) - 1]}"
    await defined(LOAD.replace("myapp.processors.validate_data", "retried.validate"), "load_and_process_data")(source)


@task("retried.chunk", executor="inline", retry=AGAIN)
def chunk(table_id: str, offset: int, limit: int) -> list[Any]:
    return [table_id, offset, limit]


@task("retried.validate", executor="inline", retry=AGAIN)
def validate(input_obj: str) -> str:
    return input_obj


@pytest.fixture(scope="module")
def stage(server_url: str, template_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One database and one worker for all of these jobs."""
    with scratch(server_url, template_database) as url, pytest.MonkeyPatch.context() as patch:
        patch.delenv("HOLDFAST_TEST_RUN_DIRECTORY", raising=False)
        patch.setenv("HOLDFAST_DATABASE_URL", url)
        stage = Stage(url, Path(tmp_path_factory.mktemp("stage")), tasks=())
        with stage.worker("inline", slots=4):
            yield stage
        stage.close()
        shared.close()
        with psycopg.connect(url) as connection:
            assert disagreements(connection) == []


def followed(*scripts: Script) -> Any:
    """The job of a parent that follows these scripts, once everything in it has ended."""
    job = sync.create_job("retried", [{"entrypoint": "retried.follow", "kwargs": {"scripts": list(scripts)}}])
    return checked(sync.wait_for_job(job, 30))


def checked(job: Any) -> Any:
    """Return the job, after checking that every successful join had the result of every slice."""
    for one in job.tasks:
        if one.entrypoint == "retried.join" and one.status == "SUCCEEDED":
            of_map = one.kwargs["results"]["$results"]
            with psycopg.connect(shared.client_for(load()).runtime.database_url) as connection:
                query = "select count(*) from holdfast.runs where map_id = %s"
                (stored,) = connection.execute(query, [of_map["map"]]).fetchone() or (None,)
            assert len(one.result()) == stored + 1, "the join missed slices"
    return job


STUMBLE: Call = {"stumble": True}

DIFFERENCES: dict[str, tuple[list[Script], str]] = {
    "fewer rows": ([[{"map": 20}, STUMBLE], [{"map": 10}, {"collect": "retried.join"}]], "stored 20, requested 10"),
    "more rows": (
        [[{"map": 10}, {"collect": "retried.join"}, STUMBLE], [{"map": 20}, {"collect": "retried.join"}]],
        "stored 10, requested 20",
    ),
    "other values": ([[{"map": [1, 2]}, STUMBLE], [{"map": [1, 3]}]], "/dataset/items/1: stored 2, requested 3"),
    "many other values": (
        [[{"map": [0] * 3000, "size": 3000}, STUMBLE], [{"map": [1] * 3000, "size": 3000}]],
        "sha256",
    ),
    "other slices": ([[{"map": 8, "size": 4}, STUMBLE], [{"map": 8, "size": 2}]], "/chunk_size: stored 4, requested 2"),
    "other task of a map": (
        [[{"map": 2}, STUMBLE], [{"map": 2, "task": "retried.other_slice"}]],
        'stored "retried.slice", requested "retried.other_slice"',
    ),
    "other arguments of a map": (
        [[{"map": 2}, STUMBLE], [{"map": 2, "offset": 5}]],
        "/kwargs/offset: stored nothing, requested 5",
    ),
    "a map twice under one key": ([[{"map": 3, "key": "k"}, {"map": 2, "key": "k"}]], "stored 3, requested 2"),
    "a join with other arguments": (
        [[{"map": 2}, {"collect": "retried.join"}, STUMBLE], [{"map": 2}, {"collect": "retried.join", "bonus": 1}]],
        "/kwargs/bonus: stored nothing, requested 1",
    ),
    "two joins under one name": (
        [[{"map": 2}, {"collect": "retried.join", "bonus": 1}, {"collect": "retried.join", "bonus": 2}]],
        "/kwargs/bonus: stored 1, requested 2",
    ),
    "another child, by its place": ([[{"add": 1}, STUMBLE], [{"add": 2}]], "/kwargs/number: stored 1, requested 2"),
    "another child, by its key": (
        [[{"add": 1, "key": "k"}, STUMBLE], [{"add": 2, "key": "k"}]],
        "stored 1, requested 2",
    ),
    "one key for two children": ([[{"add": 1, "key": "k"}, {"add": 2, "key": "k"}]], "stored 1, requested 2"),
    "a child of another task": (
        [[{"add": 1}, STUMBLE], [{"add": 1, "task": "retried.other_leaf"}]],
        "task: stored retried.leaf, requested retried.other_leaf",
    ),
    "a child that waits for others": (
        [[{"add": 1, "key": "a"}, {"add": 2}, STUMBLE], [{"add": 1, "key": "a"}, {"add": 2, "depends_on": ["a"]}]],
        "depends_on: stored nothing, requested",
    ),
    "a child added at once, then with the end": (
        [[{"add": 1, "key": "k"}, STUMBLE], [{"add": 2, "key": "k", "when": "finish"}]],
        "stored 1, requested 2",
    ),
    "one key for two children of the end": (
        [[{"add": 1, "key": "k", "when": "finish"}, {"add": 2, "key": "k", "when": "finish"}]],
        "stored 1, requested 2",
    ),
    "another run, by its place": ([[{"submit": 1}, STUMBLE], [{"submit": 2}]], "stored 1, requested 2"),
    "another run, by its key": (
        [[{"submit": 1, "key": "k"}, STUMBLE], [{"submit": 2, "key": "k"}]],
        "stored 1, requested 2",
    ),
    "a difference that the task ignores": (
        [[{"add": 1}, STUMBLE], [{"add": 2, "swallowed": True}]],
        "/kwargs/number: stored 1, requested 2",
    ),
    "children that are left out": (
        [[{"add": 1, "key": "a"}, {"add": 2, "key": "b"}, STUMBLE], [{"add": 1, "key": "a"}]],
        "did not request what an earlier attempt had added: key b (retried.leaf, added by attempt 1)",
    ),
    "a map that is left out": ([[{"map": 2}, STUMBLE], [{"add": 1, "key": "x"}]], "map call 1 (retried.slice"),
    "a join that is left out": (
        [[{"map": 2}, {"collect": "retried.join"}, STUMBLE], [{"map": 2}]],
        "collect retried.join of map",
    ),
    "children of two attempts that are left out": (
        [
            [{"add": 1, "key": "a"}, STUMBLE],
            [{"add": 1, "key": "a"}, {"add": 2, "key": "b"}, STUMBLE],
            [{"add": 3, "key": "c"}],
        ],
        "key a (retried.leaf, added by attempt 1); key b (retried.leaf, added by attempt 2)",
    ),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_attempt_that_requests_something_else_fails_without_retry_and_names_the_difference(
    stage: Stage, name: str
) -> None:
    scripts, named = DIFFERENCES[name]
    job = followed(*scripts)
    parent = job.tasks[0]
    assert (job.status, parent.status) == ("FAILED", "FAILED")
    assert "ChildDiffers" in str(parent.error_message)
    assert named in str(parent.error_message)
    assert parent.retry_count == len(scripts) - 1, "what cannot be repaired by an attempt is not attempted again"


PROGRAM: Script = [
    {"add": 1},
    {"map": 6, "size": 2, "key": "m"},
    {"collect": "retried.join", "bonus": 7},
    {"add": 2, "key": "two"},
    {"add": 3, "depends_on": ["two"]},
    {"map": [5, 6, 7]},
    {"collect": "retried.join"},
    {"submit": 4, "key": "four"},
    {"add": 5, "key": "five", "when": "finish"},
]


@pytest.mark.parametrize("calls", range(len(PROGRAM) + 1))
def test_attempt_after_a_crash_after_any_call_leads_to_the_same_job(stage: Stage, calls: int) -> None:
    job = followed([*PROGRAM[:calls], STUMBLE], PROGRAM)
    assert (job.status, job.completed_tasks, job.total_tasks) == ("SUCCEEDED", 14, 14)
    assert [one.result() for one in job.tasks if one.entrypoint == "retried.join"] == [[1, 5, 9, 7], [5, 6, 7, 0]]
    leaf, mapped = ["leaf"], ["slice"] * 3 + ["join"]
    order = [*leaf, *mapped, *leaf, *leaf, *mapped, *leaf, *leaf]
    assert [one.entrypoint for one in job.tasks] == [f"retried.{name}" for name in ("follow", *order)]
    assert [one.kwargs["number"] for one in job.tasks if one.entrypoint == "retried.leaf"] == [1, 2, 3, 4, 5]


def test_attempts_with_a_crash_after_each_call_lead_to_the_same_job(stage: Stage) -> None:
    job = followed([*PROGRAM[:2], STUMBLE], [*PROGRAM[:5], STUMBLE], PROGRAM)
    assert (job.status, job.completed_tasks, job.total_tasks) == ("SUCCEEDED", 14, 14)


def test_keyed_children_may_be_requested_in_another_order(stage: Stage) -> None:
    first: Script = [{"add": 1, "key": "a"}, {"add": 2, "key": "b"}, STUMBLE]
    job = followed(first, [{"add": 2, "key": "b"}, {"add": 3, "key": "c"}, {"add": 1, "key": "a"}])
    assert (job.status, job.total_tasks) == ("SUCCEEDED", 4)


def test_table_that_has_grown_keeps_its_map_and_the_log_says_so(stage: Stage) -> None:
    stage.query("create table public.grows (id bigint primary key)")
    stage.query("insert into public.grows select generate_series(1, 4)")
    table = {"url": stage.url, "table": "public.grows"}
    script: Script = [{"map": table, "size": 2}, {"collect": "retried.join"}]
    job = sync.create_job(
        "retried",
        [
            {
                "entrypoint": "retried.grow_and_follow",
                "kwargs": {"url": stage.url, "scripts": [[script[0], STUMBLE], script]},
            }
        ],
    )
    job = checked(sync.wait_for_job(job, 30))
    assert job.status == "SUCCEEDED"
    assert [one.result() for one in job.tasks if one.entrypoint == "retried.join"] == [[3, 7, 0]]
    query = "select message from holdfast.logs where run_id = %s and level = 'warning'"
    ((message,),) = stage.query(query, job.tasks[0].id)
    assert "slices: stored 2, requested 3" in message


@task("retried.grow_and_follow", executor="inline", retry=AGAIN)
def grow_and_follow(url: str, scripts: list[Script]) -> str:
    if current_run().attempt == 2:
        with psycopg.connect(url) as connection:
            connection.execute("insert into public.grows values (9) on conflict do nothing")
    return follow(scripts)


def test_failed_parent_that_requests_the_same_again_can_be_retried(stage: Stage) -> None:
    good: Script = [{"map": 4}, {"collect": "retried.join"}]
    job = followed([good[0], STUMBLE], [{"map": 3}], good)
    assert job.status == "FAILED"
    assert sync.retry_failed_tasks(job) == 1
    job = checked(sync.wait_for_job(job, 30))
    assert (job.status, job.total_tasks) == ("SUCCEEDED", 6)


def test_key_in_a_job_identifies_one_task(stage: Stage) -> None:
    job = sync.create_job(
        "keyed",
        [{"entrypoint": "retried.leaf", "kwargs": {"number": 1}, "key": "first", "run_after": timedelta(hours=1)}],
    )
    added = sync.add_task_to_job(job, "retried.leaf", {"number": 2}, key="second", depends_on=["first"])
    assert sync.add_task_to_job(job, "retried.leaf", {"number": 2}, key="second", depends_on=["first"]) == added
    assert sync.add_task_to_job(job, "retried.leaf", {"number": 1}, key="first") == job.tasks[0]
    for number, key in ((1, "second"), (2, "first")):
        with pytest.raises(HoldfastError, match="/kwargs/number"):
            sync.add_task_to_job(
                job, "retried.leaf", {"number": number}, key=key, depends_on=["first"] * (key == "second")
            )
    assert sync.get_job(job).total_tasks == 2
    sync.cancel_job(job)


def test_handle_that_is_not_the_map_is_refused(stage: Stage) -> None:
    handle = sync.map("retried.slice", range(4), 1)
    forged = {"$map": handle.reference()["$map"] | {"total": 3}}
    with pytest.raises(HoldfastError, match="has 4 slices"):
        sync.collect(forged, into="retried.join")
    with pytest.raises(HoldfastError, match="no map"):
        sync.collect({"$map": handle.reference()["$map"] | {"id": handle.job_id}}, into="retried.join")
    joined = sync.collect(handle, into="retried.join")
    assert checked(sync.wait_for_job(handle.job_id, 30)).status == "SUCCEEDED"
    assert sync.get_task(joined).result() == [0, 1, 2, 3, 0]


@pytest.fixture
def stumbling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the first attempt of a sample crash after a number of calls."""
    add = jobs.add_task_to_current_job

    async def stumble(*args: Any, **kwargs: Any) -> str:
        added = await add(*args, **kwargs)
        CALLS[0] -= 1
        if current_run().attempt == 1 and CALLS[0] == 0:
            raise Stumbled("on purpose")
        return added

    monkeypatch.setattr(jobs, "add_task_to_current_job", stumble)


@pytest.mark.usefixtures("stumbling")
@pytest.mark.parametrize(("calls", "rows"), [(n, rows) for n in (1, 2, 3) for rows in (25_000, 15_000, 35_000)])
def test_map_of_the_source_that_crashes_after_an_added_task(stage: Stage, calls: int, rows: int) -> None:
    ROWS[:], CALLS[:] = [25_000, rows], [calls]
    job = sync.wait_for_job(sync.create_job("map", [{"entrypoint": "retried.map_sample"}]), 30)
    first, *chunks = job.tasks
    offsets = sorted(one.result()[1] for one in chunks)
    if rows == 15_000 and calls == 3:
        assert "call 3 (retried.chunk, added by attempt 1)" in str(first.error_message)
        assert (job.status, offsets) == ("FAILED", [0, 10_000, 20_000])
    else:
        assert (job.status, first.result()["chunks"]) == ("SUCCEEDED", -(-rows // 10_000))
        assert offsets == list(range(0, rows, 10_000))


@pytest.mark.usefixtures("stumbling")
@pytest.mark.parametrize("source", [1, 2])
def test_first_sample_of_the_source_that_crashes_after_its_task_is_added(stage: Stage, source: int) -> None:
    ROWS[:], CALLS[:] = [1, source], [1]
    job = sync.wait_for_job(sync.create_job("load", [{"entrypoint": "retried.load_sample"}]), 30)
    assert (job.status, job.total_tasks) == ("SUCCEEDED" if source == 1 else "FAILED", 2)
    assert job.tasks[1].result() == "tbl_v1"
    if source == 2:
        assert '/kwargs/input_obj: stored "tbl_v1", requested "tbl_v2"' in str(job.tasks[0].error_message)
