"""The operations of jobs: they count their runs, end with the last of them, are stopped and reopened."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast import ops
from holdfast.domain.canonical import canonicalize
from holdfast.domain.errors import ChildDiffers, JobEnded, JobNotFound, LeaseLost, RunCancelled, RunEnded
from holdfast.domain.ids import derived_id, new_id
from holdfast.domain.jobs import NewMap, Slice
from holdfast.domain.settling import Failed, Succeeded, settle
from holdfast.domain.states import Status
from holdfast.domain.values import AttemptRef, Dependency, KnownAs
from holdfast.sql import jobs
from tests.integration.jobs_support import ERROR, Stage, new_run, stage

__all__ = ["stage"]


def test_a_job_goes_through_its_states(stage: Stage) -> None:
    job_id = stage.job(new_run(), new_run())
    assert stage.get_job(job_id).status is Status.PENDING
    first = stage.claim(1)
    started = stage.get_job(job_id)
    assert (started.status, started.started_at is not None) == (Status.RUNNING, True)
    stage.end(first)
    second = stage.claim(1)
    assert stage.get_job(job_id).started_at == started.started_at
    stage.end(second)
    job = stage.get_job(job_id)
    assert (job.status, job.total, job.succeeded) == (Status.SUCCEEDED, 2, 2)
    assert job.finished_at is not None


def test_tasks_of_the_oldest_job_come_first_in_the_order_they_were_listed(stage: Stage) -> None:
    young_priority = new_run(priority=10)
    old = stage.job(*(new_run() for _ in range(5)))
    young = stage.job(*(new_run() for _ in range(5)), young_priority)
    late = stage.add(old, new_run())[0].run.id
    assert stage.drain() == [stage.tasks(young)[5], *stage.tasks(old)[:5], late, *stage.tasks(young)[:5]]


def test_retried_task_keeps_the_queue_position_of_its_job(stage: Stage) -> None:
    old = stage.job(new_run(policy='{"delays": [0]}'))
    claims = stage.claim()
    young = stage.job(new_run())
    stage.end(claims, Failed(ERROR))
    assert stage.drain() == [*stage.tasks(old), *stage.tasks(young)]


def test_failure_of_a_critical_task_fails_the_job(stage: Stage) -> None:
    job_id = stage.job(new_run(), new_run())
    a, b = stage.claim()
    stage.fail([a])
    assert stage.get_job(job_id).status is Status.RUNNING
    stage.end([b])
    job = stage.get_job(job_id)
    assert (job.status, job.succeeded, job.failed) == (Status.FAILED, 1, 1)


def test_failure_of_a_noncritical_task_does_not_fail_the_job(stage: Stage) -> None:
    job_id = stage.job(new_run(policy='{"critical": false}'), new_run())
    a, b = stage.claim()
    stage.fail([a])
    stage.end([b])
    assert stage.get_job(job_id).status is Status.SUCCEEDED


def test_job_succeeds_although_a_task_had_no_reason_to_start(stage: Stage) -> None:
    a = new_run()
    job_id = stage.job(a, new_run(on=[Dependency(a.id, "failure")]))
    stage.drain()
    job = stage.get_job(job_id)
    assert (job.status, job.succeeded, job.cancelled) == (Status.SUCCEEDED, 1, 1)


def test_job_fails_if_a_critical_task_was_cancelled(stage: Stage) -> None:
    job_id = stage.job(new_run(), new_run())
    stage.do(lambda: ops.cancel(stage.tasks(job_id)[0], "not this one"))
    stage.drain()
    job = stage.get_job(job_id)
    assert (job.status, job.cancelled) == (Status.FAILED, 1)


def test_nothing_is_added_to_a_job_that_ended(stage: Stage) -> None:
    job_id = stage.job(new_run())
    added = stage.add(job_id, new_run())[0].run.id
    assert stage.get_job(job_id).total == 2
    assert added in stage.drain()
    with pytest.raises(JobEnded, match="ended SUCCEEDED"):
        stage.add(job_id, new_run())
    with pytest.raises(JobNotFound):
        stage.add(new_id(), new_run())
    assert stage.get_job(job_id).total == 2


def test_adding_twice_adds_once(stage: Stage) -> None:
    job_id = stage.job(new_run())
    child = new_run()
    first, again = stage.add(job_id, child)[0], stage.add(job_id, child)[0]
    assert (first.created, again.created, first.run.id) == (True, False, again.run.id)
    assert stage.get_job(job_id).total == 2


def test_a_task_adds_only_while_it_holds_its_lease(stage: Stage) -> None:
    job_id = stage.job(new_run())
    claim = stage.claim()[0]
    stage.add(job_id, new_run(), by=claim.ref)
    stage.do(lambda: ops.cancel(claim.run_id, "stop"))
    with pytest.raises(RunCancelled):
        stage.add(job_id, new_run(), by=claim.ref)
    stage.end([claim])
    with pytest.raises(LeaseLost):
        stage.add(job_id, new_run(), by=claim.ref)


def test_children_of_an_attempt_by_an_earlier_version_are_found_by_their_ids(stage: Stage) -> None:
    """It derived the id of a child only from its name."""
    job_id = stage.job(new_run(policy='{"delays": [0]}'))
    (first,) = stage.claim()
    name, map_name = KnownAs(first.run_id, "key x"), KnownAs(first.run_id, "map call 2")
    child = new_run(derived_id(*name), job_id=job_id)
    old_map = NewMap(derived_id(*map_name), job_id, None, "{}", 2)
    slices = [Slice(*canonicalize({"n": n})) for n in range(2)]

    def add_map(new: NewMap, by: AttemptRef) -> Any:
        return stage.do(lambda: ops.add_map(new, new_run(job_id=job_id), lambda _: slices[: new.total], by, None))

    stage.do(lambda: ops.add_tasks([child], first.ref))
    assert add_map(old_map, first.ref).created
    stage.end([first], Failed(ERROR))
    (again,) = [claim for claim in stage.claim() if claim.run_id == first.run_id]
    (found,) = stage.do(lambda: ops.add_tasks([replace(child, known_as=name)], again.ref))
    assert (found.created, found.run.id) == (False, child.id)
    assert add_map(replace(old_map, known_as=map_name), again.ref).map.id == old_map.id
    with pytest.raises(ChildDiffers, match="/slices: stored 2, requested 1"):
        add_map(replace(old_map, known_as=map_name, total=1), again.ref)
    with pytest.raises(ChildDiffers, match="task: stored noop, requested other"):
        stage.do(lambda: ops.add_tasks([replace(child, task="other", known_as=name)], again.ref))
    assert stage.get_job(job_id).total == 4
    stage.end([again])
    stage.drain()


def test_children_are_added_with_their_parents_success_or_not_at_all(stage: Stage) -> None:
    job_id = stage.job(new_run(), new_run())
    parent, failing = stage.claim()
    child = replace(new_run(derived_id(parent.run_id, "child")), job_id=job_id, parent_id=parent.run_id)
    other = replace(new_run(derived_id(failing.run_id, "child")), job_id=job_id, parent_id=failing.run_id)
    good = settle(parent, Succeeded("null"), 0.5)._replace(adds=(child, child))
    bad = settle(failing, Failed(ERROR), 0.5)._replace(adds=(other,))
    stage.finish([good, bad])
    assert child.id in stage.tasks(job_id)
    assert other.id not in stage.tasks(job_id)
    assert stage.get_job(job_id).total == 3
    stage.finish([good])
    assert stage.get_job(job_id).total == 3


def test_children_of_the_last_task_keep_the_job_open(stage: Stage) -> None:
    job_id = stage.job(new_run())
    (parent,) = stage.claim()
    child = replace(new_run(derived_id(parent.run_id, "child")), job_id=job_id)
    stage.finish([settle(parent, Succeeded("null"), 0.5)._replace(adds=(child,))])
    assert stage.get_job(job_id).status is Status.RUNNING
    assert stage.drain() == [child.id]
    assert stage.get_job(job_id).status is Status.SUCCEEDED


def test_only_failed_tasks_run_again(stage: Stage) -> None:
    a, b, c, d = (new_run() for _ in range(4))
    b, c = replace(b, depends_on=(Dependency(a.id),)), replace(c, depends_on=(Dependency(b.id),))
    job_id = stage.job(a, b, c, d)
    first, second, third, fourth = stage.tasks(job_id)
    claims = {claim.run_id: claim for claim in stage.claim()}
    stage.end([claims[fourth]])
    stage.fail([claims[first]])
    assert stage.get_job(job_id).status is Status.FAILED
    assert stage.statuses(second, third) == ["CANCELLED", "CANCELLED"]
    assert stage.do(lambda: ops.retry_failed_tasks(job_id, "me")) == 3
    assert stage.get_job(job_id).status is Status.RUNNING
    assert stage.drain() == [first, second, third]
    job = stage.get_job(job_id)
    assert (job.status, job.succeeded, job.failed, job.cancelled) == (Status.SUCCEEDED, 4, 0, 0)
    with pytest.raises(JobEnded):
        stage.do(lambda: ops.retry_failed_tasks(job_id, "me"))


def test_retrying_one_run_reopens_its_job_unless_that_succeeded(stage: Stage) -> None:
    job_id = stage.job(new_run())
    (task,) = stage.tasks(job_id)
    stage.fail(stage.claim())
    stage.do(lambda: ops.retry(task, "me"))
    assert stage.get_job(job_id).status is Status.RUNNING
    stage.drain()
    lucky = stage.job(new_run(policy='{"critical": false}'))
    stage.fail(stage.claim())
    assert stage.get_job(lucky).status is Status.SUCCEEDED
    with pytest.raises(RunEnded, match="succeeded without it"):
        stage.do(lambda: ops.retry(stage.tasks(lucky)[0], "me"))


def test_retrying_one_run_of_a_cancelled_job_leaves_no_other_run_stuck(stage: Stage) -> None:
    a = new_run()
    job_id = stage.job(a, *(new_run() for _ in range(4)), new_run(on=[a.id]))
    first, running, *others, alone, after = stage.tasks(job_id)
    claims = stage.claim(2)
    stage.do(lambda: ops.cancel(alone, "not this one"))
    stage.stop_job(job_id)
    stage.stop(claims)
    stage.do(lambda: ops.retry(first, "me"))
    assert stage.drain() == [first]
    assert stage.get_job(job_id).status is Status.FAILED
    assert stage.do(lambda: ops.retry_failed_tasks(job_id, "me")) == 5
    assert stage.drain() == [running, *others, alone, after]
    assert stage.get_job(job_id).status is Status.SUCCEEDED


def test_retrying_one_run_reopens_its_unreachable_dependents(stage: Stage) -> None:
    a, b, x = new_run(), new_run(), new_run()
    c = new_run(on=[a.id])
    d = new_run(on=[c.id])
    e = new_run(on=[a.id, b.id])
    after_x = new_run(on=[x.id])
    stage.submit(a, b, x, c, d, e, after_x)
    stage.fail(stage.claim())
    stage.do(lambda: ops.retry(a.id, "me"))
    assert stage.statuses(a.id, c.id, d.id, e.id, after_x.id) == ["PENDING"] * 3 + ["CANCELLED"] * 2
    assert stage.drain() == [a.id, c.id, d.id]
    stage.do(lambda: ops.retry(b.id, "me"))
    assert stage.drain() == [b.id, e.id]


def test_retrying_an_unreachable_run_is_refused_with_advice(stage: Stage) -> None:
    a = new_run()
    job_id = stage.job(a, new_run(on=[a.id]))
    stage.fail(stage.claim())
    with pytest.raises(RunEnded, match="retry what it depends on first"):
        stage.do(lambda: ops.retry(stage.tasks(job_id)[1], "me"))
    assert stage.get_job(job_id).status is Status.FAILED


def test_a_join_runs_once_after_the_whole_map(stage: Stage) -> None:
    job_id = stage.job()
    map_id = stage.map(job_id, 25)
    join = stage.add(job_id, new_run(on=[map_id]))[0].run.id
    assert stage.get_job(job_id).total == 26
    order = []
    while claims := stage.claim(10):
        order += [claim.run_id for claim in claims]
        stage.end(claims)
    assert order == [*sorted(order[:25]), join]
    assert stage.get_job(job_id).status is Status.SUCCEEDED


def test_join_of_an_empty_map_runs_immediately(stage: Stage) -> None:
    job_id = stage.job()
    map_id = stage.map(job_id, 0)
    join = stage.add(job_id, new_run(on=[map_id]))[0].run.id
    assert stage.drain() == [join]


def test_map_requested_twice_is_created_once(stage: Stage) -> None:
    job_id = stage.job(new_run())
    assert stage.map(job_id, 3) == stage.map(job_id, 3)
    assert stage.get_job(job_id).total == 4


def test_retried_job_runs_failed_tasks_and_then_the_join(stage: Stage) -> None:
    job_id = stage.job()
    map_id = stage.map(job_id, 1000)
    join = stage.add(job_id, new_run(on=[map_id]))[0].run.id
    claims = stage.claim()
    stage.fail(claims[100:107])
    stage.end(claims[:100] + claims[107:])
    assert stage.status(join) == "CANCELLED"
    assert stage.get_job(job_id).status is Status.FAILED
    assert stage.do(lambda: ops.retry_failed_tasks(job_id, "me")) == 8
    assert stage.drain() == [*(claim.run_id for claim in claims[100:107]), join]
    job = stage.get_job(job_id)
    assert (job.status, job.succeeded, job.broken) == (Status.SUCCEEDED, 1001, 0)


def test_job_ended_by_two_concurrent_transactions_is_counted_once(stage: Stage) -> None:
    job_id = stage.job(new_run())
    stage.do(lambda: iter(jobs.hold(job_id, timedelta(hours=1))))
    stage.drain()
    assert stage.get_job(job_id).finished_at is None
    stage.connection.execute("update holdfast.jobs set held_until = now() - interval '1 second'")
    slow = ops.end_held_jobs()
    looked = next(slow)
    found = stage.connection.execute(looked.sql, looked.params).fetchall()
    assert stage.do(ops.end_held_jobs) == 1
    ended = stage.get_job(job_id)
    late = slow.send(found)
    stage.connection.execute(late.sql, late.params)
    assert stage.get_job(job_id) == ended
    assert stage.rows("select sum(amount) from holdfast.tallies where kind = 'job SUCCEEDED'") == [(1,)]


def test_database_refuses_invalid_changes_of_jobs(stage: Stage) -> None:
    job_id = stage.job(new_run())
    stage.drain()
    wrong = [
        "update holdfast.jobs set outcome = 'FAILED'",
        "update holdfast.jobs set outcome = null, finished_at = null",
        "update holdfast.jobs set succeeded = 2",
        "update holdfast.jobs set name = 'other'",
        "update holdfast.jobs set started_at = null",
        f"insert into holdfast.dependencies values ('{job_id}', '{job_id}', 'success')",
        f"insert into holdfast.maps values ('{job_id}', '{job_id}', null, now(), 1, 2, 0, 't', '{{}}')",
    ]
    for statement in wrong:
        with pytest.raises(psycopg.errors.CheckViolation):
            stage.connection.execute(statement)  # type: ignore[arg-type]
