"""All interleavings of two operations on a job, with crashes at every point, and consistency checks after each."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.conftest import EXPLORED
from tests.explore.jobs_meetings import KEY_MEETINGS, MEETINGS, SIDE_MEETINGS, USER_MEETINGS
from tests.explore.jobs_stage import JobStage
from tests.explorer.explore import every_crash, every_interleaving, replay, sample_interleavings_and_crashes
from tests.explorer.schedule import parse

# By default, this many random schedules of each meeting are played, the same ones every time. `make explore` plays all.
ORDERS, CRASHES = 6, 3


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("meeting", [*MEETINGS, *USER_MEETINGS, *SIDE_MEETINGS, *KEY_MEETINGS])
def test_pair_of_job_operations_violates_no_invariant(
    job_stage: JobStage, meeting: str, full: bool, record_property: pytest.FixtureRequest
) -> None:
    wanted = parse(meeting + ":").meeting
    if full:
        tallies = [every_interleaving(job_stage, wanted), every_crash(job_stage, wanted)]
    else:
        tallies = sample_interleavings_and_crashes(job_stage, wanted, ORDERS, CRASHES)
    total: Counter[str] = Counter(pairs=1, meetings=1)
    for tally in tallies:
        total.update(schedules=tally.schedules, crashes=tally.crashes, waits=tally.waits)
        total.update(transients=tally.transients, violations=len(tally.violations))
        if tally.expected is not None:
            total.update(formulas=1, as_expected=tally.schedules == tally.expected)
            assert tally.schedules == tally.expected, f"{meeting}: not every interleaving was played"
    record_property(EXPLORED, dict(total))  # type: ignore[operator]
    violations = [str(violation) for tally in tallies for violation in tally.violations]
    assert not violations, "\n".join(violations[:20])


# Schedules that once violated an invariant.
ONCE_BROKEN = [
    # A stop that waited for the end of the job's last run returned a job that had SUCCEEDED.
    "succeed_a+stop@last:aaababbbbbb",
    # A stop that found the job ended, and read it after it was reopened, returned a job that continues.
    "retry+stop@over:aaaaaaaaaaaaabaaabbbbbb",
    # A run that a heal ended because of a failure stayed ended although the failed run was just being reopened.
    "heal+retry_a@forgotten_failure:bbbb",
]


@pytest.mark.parametrize("schedule", ONCE_BROKEN)
def test_schedule_that_once_violated_a_job_invariant_passes(job_stage: JobStage, schedule: str) -> None:
    assert replay(job_stage, schedule).violations == []
