"""No statement both waits for rows that other transactions change and prunes partitions afterwards.

In PostgreSQL 18, before the fix of its EvalPlanQual, such a statement reads freed memory: when a row that it locks was
changed by another transaction, a second executor checks it again, and takes over the state of every run-time pruning of
the statement. When the last row is locked, that executor and its memory are gone; later pruning may crash the whole
server, or read the wrong month. Whether and which of these happens is a matter of luck, so this test examines the plans
instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.explorer.wire import compiled
from tests.integration.jobs_support import Stage, new_run
from tests.integration.test_schema_statements import STATEMENTS, described, variants

__all__ = ["described"]

# With these off, as most of them are in workers, every join with a partitioned table queries it row by row, which is
# when it is pruned at run time.
OTHER_WAYS = ("hashjoin", "mergejoin", "seqscan", "bitmapscan", "material", "memoize", "sort", "hashagg")
TOKEN = re.compile(r'[{}()]|"(?:[^"\\]|\\.)*"|(?:\\.|[^\s{}()"\\])+')
CHANGES = ("2", "4", "5")  # update, delete, merge
LOCKED = ("0", "1", "2", "3")  # the kinds of row marks that lock

Node = dict[str, list[Any]]


def parse(text: str) -> Any:
    """A plan as the server prints it: nodes as dictionaries of the lists of what follows each name."""
    tokens = iter(TOKEN.findall(text))

    def value(token: str) -> Any:
        if token == "(":
            return [value(one) for one in iter(lambda: next(tokens), ")")]
        if token != "{":
            return token
        node: Node = {"node": [next(tokens)]}
        for one in iter(lambda: next(tokens), "}"):
            if one.startswith(":"):
                into = node.setdefault(one, [])
            else:
                into.append(value(one))
        return node

    return value(next(tokens))


def nodes(tree: Any, above: tuple[Node, ...] = ()) -> Iterator[tuple[Node, tuple[Node, ...]]]:
    """Every node of a tree, and the nodes above it."""
    if isinstance(tree, dict):
        yield tree, above
        above, tree = (*above, tree), list(tree.values())
    if isinstance(tree, list):
        for one in tree:
            yield from nodes(one, above)


def kind(node: Node) -> str:
    return str(node["node"][0])


def pruned_at_run_time(plan: Node) -> dict[str, bool]:
    """The numbers of the prunings that happen for each row, and whether each was begun before the first."""
    found = {}
    for number, info in enumerate(one for part in plan[":partPruneInfos"] if isinstance(part, list) for one in part):
        steps = [node for node, _ in nodes(info) if kind(node) == "PARTITIONEDRELPRUNEINFO"]
        if any(node[":exec_pruning_steps"] != ["<>"] for node in steps):
            found[str(number)] = any(node[":initial_pruning_steps"] != ["<>"] for node in steps)
    return found


def locks(plan: Node, never_changed: str) -> bool:
    """Whether rows are locked that other transactions may change."""
    (tables,) = plan[":rtable"]
    marks = [mark for node, _ in nodes(plan) if kind(node) == "LOCKROWS" for mark in node[":rowMarks"][0]]
    locked = {tables[int(mark[":rti"][0]) - 1][":relid"][0] for mark in marks if mark[":markType"][0] in LOCKED}
    return bool(locked - {never_changed})


def meets_again(node: Node) -> bool:
    """Whether this node rechecks a row that another transaction has changed."""
    return kind(node) == "LOCKROWS" or (kind(node) == "MODIFYTABLE" and node[":operation"][0] in CHANGES)


def faults(plan: Node, never_changed: str) -> set[str]:
    pruned = pruned_at_run_time(plan)
    locking = bool(pruned) and locks(plan, never_changed)
    looking = bool(pruned) and any(meets_again(node) for node, _ in nodes(plan))
    found = set()
    for part in (":planTree", ":subplans"):
        for node, above in nodes(plan[part]):
            number = node.get(":part_prune_index", ["-1"])[0]
            if number not in pruned:
                continue
            if part == ":subplans" and locking:
                found.add("locks rows, and prunes with what that left behind")
            if part == ":subplans" and looking and pruned[number]:
                found.add("numbers its partitions anew for each look at a changed row")
            if any(meets_again(one) for one in above):
                found.add("prunes while it looks again at a changed row")
    return found


class Plans:
    """The plans that the server logs for one connection."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        if connection.info.server_version < 180000:
            pytest.skip("before 18 each executor prunes with its own state")
        self._said: list[str] = []
        (row,) = connection.execute("select 'holdfast.ready'::regclass::oid::text").fetchall()
        self._never_changed = row[0]  # a trigger refuses updates of it
        connection.add_notice_handler(lambda note: self._said.append(note.message_detail or ""))
        for way in OTHER_WAYS:
            connection.execute(f"set enable_{way} = off")  # type: ignore[arg-type]
        connection.execute("set debug_pretty_print = off")
        connection.execute("set client_min_messages = log")
        connection.execute("set debug_print_plan = on")

    def take(self) -> list[set[str]]:
        """The faults of each plan since the last call."""
        said, self._said[:] = list(self._said), []
        plans = [parse(text) for text in said if text.startswith("{PLANNEDSTMT")]
        return [faults(plan, self._never_changed) for plan in plans]


@pytest.fixture(scope="module")
def planned(described: psycopg.Connection) -> Iterator[Plans]:
    yield Plans(described)
    described.execute("reset all")


@pytest.mark.parametrize("name", STATEMENTS)
def test_statement_never_prunes_with_state_left_by_a_lock(
    described: psycopg.Connection, planned: Plans, name: str
) -> None:
    for statement in variants(name):
        text = compiled(statement.sql)[0].decode()
        planned.take()
        described.execute(f"explain (generic_plan) {text}", prepare=False)  # type: ignore[arg-type]
        found = planned.take()
        assert found
        assert not any(found)


def test_operations_and_triggers_never_prune_with_state_left_by_a_lock(database_url: str) -> None:
    stage = Stage(database_url)
    try:
        planned = Plans(stage.connection)
        first = new_run()
        stage.submit(first, new_run(on=[first.id]))
        stage.fail(stage.claim())
        job = stage.job(a := new_run(), new_run(on=[a.id]))
        stage.claim()
        stage.stop_job(job)
        found = planned.take()
        assert len(found) > 20
        assert not any(found)
    finally:
        stage.close()


OFFENDER = """
    with held as (
        select run_id from holdfast.waiting where blockers > 0 for update
    ), counted as (
        insert into holdfast.tallies (task, kind, amount)
        select runs.task, '', 1 from held join holdfast.runs on runs.id = held.run_id
    )
    select count(*) from held
"""


def test_unsafe_plan_is_detected(described: psycopg.Connection, planned: Plans) -> None:
    planned.take()
    described.execute(f"explain {OFFENDER}")
    assert planned.take() == [{"locks rows, and prunes with what that left behind"}]
