"""Claiming: in order, up to a limit, and only by live workers that are not draining."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256

import pytest

from holdfast import ops
from tests.timeline import Timeline, new_run


def test_runs_are_claimed_by_priority_then_by_age(timeline: Timeline) -> None:
    low = timeline.submit({"n": 1}, priority=-100)
    first = timeline.submit({"n": 2})
    second = timeline.submit({"n": 3})
    high = timeline.submit({"n": 4}, priority=100)
    claims = timeline.worker("a").claim(10)
    assert [claim.run_id for claim in claims] == [high, first, second, low]


def test_single_claims_follow_the_same_order(timeline: Timeline) -> None:
    low = timeline.submit({"n": 1}, priority=-1)
    first = timeline.submit({"n": 2})
    high = timeline.submit({"n": 3}, priority=1)
    worker = timeline.worker("a")
    for run in (high, first, low):
        worker.claims(run)


def test_runs_created_at_the_same_time_are_claimed_by_id(timeline: Timeline) -> None:
    many = [new_run({"n": n}) for n in range(20)]
    timeline.perform(lambda: ops.submit_many(many[::-1]))
    claims = timeline.worker("a").claim(20)
    assert [claim.run_id for claim in claims] == [new.id for new in many]


def test_claim_takes_no_more_than_its_limit(timeline: Timeline) -> None:
    for queue in ("one", "two", "three"):
        timeline.perform(lambda q=queue: ops.submit_many([new_run({"n": n}, queue=q) for n in range(5)]))
    worker = timeline.worker("a")
    assert len(worker.claim(4, "one", "two", "three")) == 4
    assert len(worker.claim(100, "one", "two", "three")) == 11
    assert worker.claim(100, "one", "two", "three") == []


def test_queues_are_searched_in_the_given_order(timeline: Timeline) -> None:
    second = timeline.submit(queue="b")
    first = timeline.submit(queue="a")
    worker = timeline.worker("a")
    assert worker.claims(second, "b", "a")
    assert worker.claims(first, "b", "a")


def test_claim_takes_runs_of_the_named_queues_only(timeline: Timeline) -> None:
    timeline.submit(queue="other")
    assert timeline.worker("a").claim(10, "default") == []


def test_no_run_is_claimed_twice(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.worker("a").claims(run)
    assert timeline.worker("b").claim() == []
    assert timeline.get(run).lease_owner == timeline.worker("a").id


@pytest.mark.every_driver
def test_claim_has_everything_an_executor_needs(timeline: Timeline) -> None:
    run = timeline.submit({"n": 1}, policy='{"max_attempts": 5}', queue="models")
    claim = timeline.worker("a").claims(run, "models")
    assert (claim.task, claim.queue, claim.parameters, claim.policy) == (
        "work",
        "models",
        '{"n":1}',
        '{"max_attempts": 5}',
    )
    assert (claim.number, claim.excused, claim.spent, claim.crashes) == (1, 0, 1, 0)
    assert claim.payload_hash == sha256(b'{"n":1}').digest()
    assert claim.lag >= 0


@pytest.mark.every_driver
def test_lag_is_measured_from_when_the_run_was_due(timeline: Timeline) -> None:
    run = timeline.submit(run_after=timedelta(minutes=10))
    worker = timeline.worker("a", lease=timedelta(hours=1))
    timeline.later(minutes=12)
    timeline.promote()
    assert 120 <= worker.claims(run).lag < 180


@pytest.mark.every_driver
def test_no_run_of_a_paused_queue_is_claimed(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.pause("default", reason="maintenance")
    worker = timeline.worker("a")
    assert worker.claim() == []
    assert worker.take(run) is None
    timeline.resume("default")
    worker.claims(run)


def test_paused_queue_does_not_stop_other_queues(timeline: Timeline) -> None:
    timeline.submit(queue="paused")
    run = timeline.submit(queue="open")
    timeline.pause("paused")
    assert [claim.run_id for claim in timeline.worker("a").claim(10, "paused", "open")] == [run]


def test_expired_worker_claims_nothing(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    timeline.later(seconds=61)
    assert worker.claim() == []
    assert worker.take(run) is None
    assert timeline.status(run) == "PENDING"


def test_deregistered_worker_claims_nothing(timeline: Timeline) -> None:
    timeline.submit()
    worker = timeline.worker("a")
    worker.deregister()
    assert worker.claim() == []


def test_draining_worker_claims_nothing(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    assert worker.drain() == 1
    assert worker.claim() == []
    assert worker.take(run) is None
    assert worker.renew().drain


def test_claim_skips_runs_before_its_lower_bound(timeline: Timeline) -> None:
    runs = [timeline.submit({"n": n}) for n in range(3)]
    worker = timeline.worker("a")
    claim = worker.claims(runs[0])
    worker.hands_back(claim)
    urgent = timeline.submit({"n": "urgent"}, priority=1)
    behind = [found.run_id for found in worker.claim(10, after=claim)]
    assert behind == [runs[1], runs[2], runs[0]], "handed back just now, so behind the others; the urgent one is before"
    worker.claims(urgent)


def test_handed_back_run_can_be_claimed_again_immediately(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    worker.hands_back(worker.claims(run))
    again = timeline.worker("b").claims(run)
    assert (again.number, again.excused, again.spent) == (2, 1, 1)


def test_worker_claims_only_runs_of_its_registered_tasks(timeline: Timeline) -> None:
    foreign = timeline.submit(task="foreign", priority=100)
    known = timeline.submit(task="known")
    worker = timeline.worker("a", tasks=("known", "other"))
    assert [claim.run_id for claim in worker.claim(10)] == [known]
    assert worker.take(foreign) is None
    assert timeline.status(foreign) == "PENDING"


def test_runs_of_several_tasks_are_claimed_in_one_order(timeline: Timeline) -> None:
    wanted = []
    for number, (task, priority) in enumerate([("b", 0), ("a", 0), ("c", 5), ("a", 5), ("b", -1), ("c", 0)]):
        timeline.later(seconds=1)
        wanted.append((-priority, number, timeline.submit({"n": number}, task=task, priority=priority)))
    claims = timeline.worker("w").claim(4)
    assert [claim.run_id for claim in claims] == [run for _, _, run in sorted(wanted)][:4]
    assert [claim.run_id for claim in timeline.worker("w").claim(4, after=claims[-1])] == [
        run for _, _, run in sorted(wanted)
    ][4:]
