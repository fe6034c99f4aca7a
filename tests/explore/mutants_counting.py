"""Guards of the counter of created runs: a single run is counted once, when it leaves the queue or is handed over."""

from __future__ import annotations

from tests.explore.catching import Mutant
from tests.explore.mutants_hand_over import given
from tests.explore.mutants_sql import by_test, mutant

ONCE = "test_counting::test_single_run_is_counted_once_however_it_leaves_the_queue"
HANDED_OVER = by_test("test_hand_over::test_new_run_is_counted_once_whether_it_is_handed_over_or_queued", again=False)
HANDED_OVER_AGAIN = by_test(
    "test_hand_over::test_new_run_is_counted_once_whether_it_is_handed_over_or_queued", again=True
)

COUNTING: list[Mutant] = [
    given(
        "count-at-the-claim",
        "a run that was not counted when it was created is counted when it leaves the queue",
        "    select task, 'created', count(*) from departed where not counted group by task;",
        "    select task, 'created', count(*) from departed where false group by task;",
        by_test(ONCE, leaves="claimed", key=None),
    ),
    given(
        "count-only-once",
        "a run that was counted when it was created is not counted again",
        "    select task, 'created', count(*) from departed where not counted group by task;",
        "    select task, 'created', count(*) from departed group by task;",
        by_test(ONCE, leaves="claimed", key=None),
    ),
    given(
        "count-a-new-run",
        "a new run that is queued is counted later",
        "-new_priority, new_queue, new_task, false);",
        "-new_priority, new_queue, new_task, true);",
        HANDED_OVER,
    ),
    given(
        "count-a-hand-over",
        "a new run that is handed over is counted immediately: it is never in the queue",
        "        insert into holdfast.tallies (task, kind, amount) values (new_task, 'created', 1);\n",
        "        perform 1;\n",
        HANDED_OVER,
    ),
    mutant(
        "count-one-that-is-queued",
        "a run that is queued by the statement that may hand it over is not counted by that statement",
        "select task, 'created', 1 from made where not exists (select from queued)",
        "select task, 'created', 1 from made",
        HANDED_OVER_AGAIN,
    ),
    mutant(
        "count-those-in-the-queue",
        "the counters include runs that are counted when they leave the queue",
        "from holdfast.ready where not counted group by task",
        "from holdfast.ready where false group by task",
        by_test(ONCE, leaves="cancelled", key="k"),
    ),
]
