"""Children that an earlier version added to a job, with ids derived only from their names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast import ops
from holdfast.domain.ids import derived_id, new_id
from holdfast.domain.jobs import NewJob
from holdfast.domain.values import KnownAs, NewRun
from tests.timeline import Timeline, new_run


def added_by_an_earlier_version(timeline: Timeline) -> tuple[NewRun, KnownAs]:
    """A run that adds a child to its job and fails; returns the child and its name."""
    job_id = new_id()
    parent = new_run(id=derived_id(job_id, "parent"), job_id=job_id, policy='{"delays": [0]}')
    timeline.perform(lambda: ops.create_job(NewJob(job_id, "job"), []))
    timeline.perform(lambda: ops.add_tasks([parent], None))
    worker = timeline.worker("a")
    claim = worker.claims(parent.id)
    name = KnownAs(parent.id, "key x")
    child = new_run({"child": 1}, id=derived_id(*name), job_id=job_id, task="child")
    timeline.perform(lambda: ops.add_tasks([child], claim.ref))
    worker.fails(claim)
    return child, name


@pytest.mark.every_driver
def test_child_of_an_earlier_version_is_found_by_its_key(timeline: Timeline) -> None:
    child, name = added_by_an_earlier_version(timeline)
    found = timeline.perform(lambda: ops.find_tasks(child.job_id or "", {"x": [name]}))
    assert found == {"x": child.id}


def test_next_attempt_does_not_add_a_child_of_an_earlier_version_again(timeline: Timeline) -> None:
    child, name = added_by_an_earlier_version(timeline)
    again = timeline.worker("a").claims(name.origin)
    (found,) = timeline.perform(lambda: ops.add_tasks([replace(child, known_as=name)], again.ref))
    assert (found.created, found.run.id) == (False, child.id)
