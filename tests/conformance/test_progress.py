"""Progress: stored only for the worker that holds the lease."""

from __future__ import annotations

import pytest

from holdfast.sql import leases
from tests.timeline import Timeline


@pytest.mark.every_driver
def test_progress_is_visible_during_and_after_the_run(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    claim = worker.claims(run)
    assert timeline.ask(leases.progress(worker.id, [(claim.ref, '{"done": 3, "of": 10}')])) == [claim.ref]
    assert timeline.get(run).progress == {"done": 3, "of": 10}
    worker.succeeds(claim)
    assert timeline.get(run).progress == {"done": 3, "of": 10}


def test_progress_after_the_lease_expired_is_rejected(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    claim = worker.claims(run)
    timeline.later(seconds=61)
    assert timeline.ask(leases.progress(worker.id, [(claim.ref, '{"done": 3}')])) == []
    assert timeline.get(run).progress is None


def test_progress_of_an_earlier_attempt_is_rejected(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    earlier = worker.claims(run)
    worker.hands_back(earlier)
    worker.claims(run)
    assert timeline.ask(leases.progress(worker.id, [(earlier.ref, '{"done": 3}')])) == []
    assert timeline.get(run).progress is None
