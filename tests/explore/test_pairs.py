"""All pairs of operations, through all interleavings, with crashes at every point, and every invariant afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby

import pytest

from tests.conftest import EXPLORED
from tests.explorer.explore import (
    Tally,
    every_crash,
    every_interleaving,
    sample_crashes,
    sample_interleavings_and_crashes,
)
from tests.explorer.pairs import meetings
from tests.explorer.schedule import Meeting
from tests.explorer.situations import SITUATIONS
from tests.explorer.stage import Stage

PAIRS = {pair: list(group) for pair, group in groupby(meetings(), key=lambda m: f"{m.first}+{m.second}")}

# How many schedules of each meeting are played by default: without a crash, or all if there are fewer; with a crash;
# and with a crash in old months, which take long to create. `make explore` plays every schedule.
ORDERS, CRASHES, CRASHES_OF_OLD = 6, 2, 2


def explored(stage: Stage, meeting: Meeting, full: bool) -> Iterator[Tally]:
    if full:
        yield every_interleaving(stage, meeting)
        yield every_crash(stage, meeting)
    elif SITUATIONS[meeting.situation].old:
        yield sample_crashes(stage, meeting, CRASHES_OF_OLD)
    else:
        yield from sample_interleavings_and_crashes(stage, meeting, ORDERS, CRASHES)


def test_every_pair_of_operations_is_explored_in_some_situation() -> None:
    operations = (
        "submit submit_key submit_dedupe claim claim_by_id renew succeed fail fail_for_good hand_back cancel retry "
    )
    names = (operations + "rescue promote prune").split()
    missing = {
        (first, second)
        for first in names
        for second in names
        if f"{first}+{second}" not in PAIRS and f"{second}+{first}" not in PAIRS
    }
    assert missing == set()


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("pair", PAIRS)
def test_pair_of_operations_violates_no_invariant(
    stage: Stage, pair: str, full: bool, record_property: pytest.FixtureRequest
) -> None:
    total: Counter[str] = Counter(pairs=1, meetings=len(PAIRS[pair]))
    violations = []
    for meeting in PAIRS[pair]:
        for tally in explored(stage, meeting, full):
            total.update(schedules=tally.schedules, crashes=tally.crashes, waits=tally.waits)
            total.update(transients=tally.transients, violations=len(tally.violations))
            violations += tally.violations
            if tally.expected is not None:
                total.update(formulas=1, as_expected=tally.schedules == tally.expected)
                assert tally.schedules == tally.expected, f"{meeting}: not every interleaving was played"
    record_property(EXPLORED, dict(total))  # type: ignore[operator]
    assert not violations, "replay with: tests.explorer.explore.replay\n" + "\n".join(map(str, violations))
