"""When a round trip of a worker may overlap the one that is under way."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.domain.doorbell import Address
from holdfast.domain.states import AttemptStatus, Status
from holdfast.domain.values import AttemptRef, Settlement
from holdfast.sql.locks import Blocked
from holdfast.sql.logs import LogLine
from holdfast.worker.exchange import CROWD, Exchange
from holdfast.worker.round_trips import ExchangeRequest

REF = AttemptRef("run", 1)


def results(amount: int) -> list[Settlement]:
    refs = [AttemptRef(f"run {number}", 1) for number in range(amount)]
    return [Settlement(ref, AttemptStatus.SUCCEEDED, Status.SUCCEEDED) for ref in refs]


class Overlap:
    """An exchange with a round trip under way, and enough results for another; `begun` counts those that overlap it."""

    def __init__(self) -> None:
        executor = SimpleNamespace(room=lambda: 10)
        options: Any = SimpleNamespace(
            executor=executor,
            executors={"inline": executor},
            default_executor="inline",
            listener=SimpleNamespace(live=True, address=Address("holdfast_of_a_test", 1)),
            queues=None,
            until_empty=False,
            figures=None,
            quiet_start=0.0,
            prepare=None,
            executable_tasks=list,
        )
        connected: Any = SimpleNamespace(connected=True)
        upkeep: Any = SimpleNamespace(due={})
        self.exchange = Exchange(options, connected, connected, upkeep)
        self.exchange._second.begin = self._begin  # type: ignore[method-assign]
        self.exchange._under_way = ExchangeRequest(self.exchange.session.id)
        self.exchange.pending.put(results(CROWD))
        self.begun = 0

    def _begin(self, round_trip: Coroutine[Any, Any, None], ended: Callable[[], None]) -> None:
        round_trip.close()
        self.begun += 1

    @property
    def first(self) -> ExchangeRequest:
        assert self.exchange._under_way is not None
        return self.exchange._under_way


def begin(overlap: Overlap) -> int:
    overlap.exchange._overlap()
    return overlap.begun


def nothing_under_way(overlap: Overlap) -> None:
    overlap.exchange._under_way = None


def progress_under_way(overlap: Overlap) -> None:
    overlap.first.progress = [(REF, "{}")]


def lines_under_way(overlap: Overlap) -> None:
    overlap.first.lines = [LogLine(REF, "info", "line", 0.0)]


def look_for_given_runs_under_way(overlap: Overlap) -> None:
    """It would find the runs that the second one claims, and they would begin twice."""
    overlap.first.given = True


def notes_to_write(overlap: Overlap) -> None:
    overlap.exchange.attempt_services.note_progress(REF, "{}")


def results_in_doubt(overlap: Overlap) -> None:
    overlap.exchange.pending.mark_doubtful(results(1))


def database_away(overlap: Overlap) -> None:
    overlap.exchange._outage.failures = 1


def lease_being_returned(overlap: Overlap) -> None:
    """If the return is sent again, it would return the lease that the other round trip has just claimed."""
    overlap.exchange.results.returning.add(REF)


def session_over(overlap: Overlap) -> None:
    overlap.exchange.session.over = True


def results_to_check_for_locks(overlap: Overlap) -> None:
    overlap.exchange.pending.deferred.add_locked(results(1), [Blocked("run 0", None, False)])


def too_few_results(overlap: Overlap) -> None:
    overlap.exchange.pending.take()
    overlap.exchange.pending.put(results(CROWD - 1))


def second_not_connected(overlap: Overlap) -> None:
    overlap.exchange._second.rest()


def test_round_trip_overlaps_the_one_under_way_if_there_are_enough_results() -> None:
    overlap = Overlap()
    assert begin(overlap) == 1
    assert not overlap.exchange.pending.waiting


@pytest.mark.parametrize(
    "state",
    [
        nothing_under_way,
        progress_under_way,
        lines_under_way,
        look_for_given_runs_under_way,
        notes_to_write,
        results_in_doubt,
        database_away,
        lease_being_returned,
        session_over,
        results_to_check_for_locks,
        too_few_results,
        second_not_connected,
    ],
)
def test_no_round_trip_overlaps_in_this_state(state: Callable[[Overlap], None]) -> None:
    overlap = Overlap()
    state(overlap)
    waiting = len(overlap.exchange.pending.waiting)
    assert begin(overlap) == 0
    assert len(overlap.exchange.pending.waiting) == waiting
