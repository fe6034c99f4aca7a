"""Renewing: a worker stays alive if it renews in time, and receives cancel requests for its runs."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import ops
from holdfast.domain.errors import LeaseLost
from holdfast.domain.ids import new_id
from holdfast.domain.values import WorkerInfo
from holdfast.sql import workers
from tests.timeline import Timeline


def test_renewal_in_time_keeps_the_lease(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    claim = worker.claims(run)
    for _ in range(5):
        timeline.later(seconds=59)
        assert worker.renew().held == {claim.ref}
        assert timeline.rescue() == []
    assert worker.succeeds(claim).accepted


def test_expired_lease_is_not_renewed(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    worker.claims(run)
    timeline.later(seconds=61)
    with pytest.raises(LeaseLost):
        worker.renew()
    assert [ack.status for ack in timeline.rescue()] == ["LOST"]


def test_renewal_never_shortens_a_lease(timeline: Timeline) -> None:
    """Even if the database's clock is set back."""
    run = timeline.submit()
    worker = timeline.worker("a")
    worker.claims(run)
    before = timeline.get(run).lease_expires_at
    timeline.later(seconds=-30)
    worker.renew()
    assert timeline.get(run).lease_expires_at == before


@pytest.mark.every_driver
def test_renewal_returns_runs_with_cancel_requests(timeline: Timeline) -> None:
    runs = [timeline.submit({"n": n}) for n in range(2)]
    worker = timeline.worker("a")
    claims = worker.claim(2)
    timeline.cancel(runs[1])
    renewal = worker.renew()
    assert renewal.held == {claim.ref for claim in claims}
    assert renewal.cancelled == {claims[1].ref}
    assert not renewal.drain


def test_renewal_returns_the_held_leases(timeline: Timeline) -> None:
    runs = [timeline.submit({"n": n}) for n in range(3)]
    worker = timeline.worker("a", lease=timedelta(hours=1))
    claims = worker.claim(3)
    worker.succeeds(claims[0])
    timeline.worker("b").claim()
    assert worker.renew().held == {claims[1].ref, claims[2].ref}
    assert {ref.run_id for ref in worker.renew().held} == set(runs[1:])


def test_deregistered_worker_is_expired(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    worker.claims(run)
    worker.deregister()
    with pytest.raises(LeaseLost):
        worker.renew()
    assert [ack.status for ack in timeline.rescue()] == ["LOST"]


def test_renewal_that_began_before_the_worker_deregistered_does_not_revive_it(timeline: Timeline) -> None:
    """A statement has the time at which it began, even if it had to wait for another one."""
    run = timeline.submit()
    worker = timeline.worker("a")
    worker.claims(run)
    worker.deregister()
    timeline.later(seconds=-5)
    with pytest.raises(LeaseLost):
        worker.renew()
    timeline.later(seconds=5)
    assert [ack.status for ack in timeline.rescue()] == ["LOST"]


def test_renewal_of_an_unknown_worker_raises_lease_lost(timeline: Timeline) -> None:
    with pytest.raises(LeaseLost):
        timeline.perform(lambda: ops.renew(new_id()))


@pytest.mark.every_driver
def test_worker_cannot_register_again_with_its_old_id(timeline: Timeline) -> None:
    """Registering is not a renewal: an existing row is not changed."""
    worker = timeline.worker("a")
    timeline.later(seconds=61)
    record = timeline.ask(workers.listing())[0]
    assert (record.id, record.status) == (worker.id, "stopped")
    timeline.ask(workers.register(WorkerInfo(worker.id, "host", 1, "a", "inline", "0", 1, timedelta(seconds=60))))
    assert timeline.ask(workers.listing())[0].status == "stopped"


@pytest.mark.every_driver
def test_worker_row_has_what_the_worker_registered(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a", queues=("default", "other"), tasks=("work",), slots=4)
    assert timeline.ask(workers.listing())[0].status == "idle"
    worker.claims(run)
    record = timeline.ask(workers.listing())[0]
    assert (record.status, record.running, record.slots) == ("active", 1, 4)
    assert (record.queues, record.tasks) == (["default", "other"], ["work"])
    worker.drain()
    assert timeline.ask(workers.listing())[0].status == "draining"
