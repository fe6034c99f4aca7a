"""Dependencies between runs, and what happens to the dependents of a run or map that ends.

An edge is open until the run or map it points to has ended. `waiting.blockers` stores the number of a run's open edges;
it is updated in the transaction that ends the run, and `stalled` finds counts that do not match the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.domain.jobs import Ended
from holdfast.sql.attempts import LOWEST
from holdfast.sql.statement import Rows, Statement, each, nothing, plain_array, text_array

OPEN = "OPEN"
PRUNED = "PRUNED"


def hold(ids: Sequence[str]) -> Statement[dict[str, str | None]]:
    """Return the state of these runs and maps: OPEN, the outcome, or None for one that was not found.

    The rows are locked, so that no other transaction ends or reopens them before this one ends. A run that another
    transaction is moving between tables is not found; call this again.
    """
    return Statement(
        """
        with queued as (
            select run_id from holdfast.ready where run_id = any(%(ids)s::uuid[]) order by run_id for key share
        ), idle as (
            select run_id from holdfast.waiting where run_id = any(%(ids)s::uuid[]) order by run_id for key share
        ), running as (
            select run_id from holdfast.leases where run_id = any(%(ids)s::uuid[]) order by run_id for key share
        ), mapped as (
            select id, open, unsuccessful from holdfast.maps where id = any(%(ids)s::uuid[]) order by id for share
        ), ended as (
            select run_id, outcome from holdfast.attempts
            where run_id = any(%(ids)s::uuid[]) and outcome is not null and reopened_at is null
            order by run_id for key share
        ), found (id, state) as (
            select run_id, 'OPEN' from queued union all select run_id, 'OPEN' from idle
            union all select run_id, 'OPEN' from running
            union all select id, case when open > 0 then 'OPEN' when unsuccessful > 0 then 'FAILED' else 'SUCCEEDED' end
                      from mapped
            union all select run_id, outcome from ended
        )
        select requested.id::text, found.state
        from unnest(%(ids)s::uuid[]) as requested (id) left join found on found.id = requested.id
        """,
        {"ids": plain_array(sorted(ids))},
        lambda found: {row[0]: row[1] for row in found},
        together=True,
    )


def gone(ids: Sequence[str]) -> Statement[set[str]]:
    """Return the ids that belong to neither a run nor a map, because those were pruned."""
    return Statement(
        """
        select requested.id::text from unnest(%(ids)s::uuid[]) as requested (id)
        where not exists (select from holdfast.runs where runs.id = requested.id)
          and not exists (select from holdfast.maps where maps.id = requested.id)
        """,
        {"ids": plain_array(ids)},
        lambda found: {str(row[0]) for row in found},
        together=True,
    )


def undecidable(run_ids: Sequence[str], gone: Sequence[str]) -> Statement[set[str]]:
    """Return the runs that never started and depend on the success or failure of a run that is `gone`.

    If a run has started, its dependencies were met. For the others this can no longer be determined.
    """
    return Statement(
        """
        select dependencies.run_id::text from holdfast.dependencies
        where dependencies.run_id = any(%(run_ids)s::uuid[]) and dependencies.on_id = any(%(gone)s::uuid[])
          and dependencies.policy <> 'always'
          and not exists (select from holdfast.attempts
                          where attempts.run_id = dependencies.run_id and attempts.number >= 1)
        """,
        {"run_ids": plain_array(run_ids), "gone": plain_array(gone)},
        lambda found: {str(row[0]) for row in found},
        together=True,
    )


def targets(run_ids: Sequence[str]) -> Statement[list[str]]:
    """Return the runs and maps that these runs depend on."""
    return Statement(
        "select distinct on_id::text from holdfast.dependencies where run_id = any(%(run_ids)s::uuid[])",
        {"run_ids": plain_array(run_ids)},
        each(lambda row: str(row[0])),
        together=True,
    )


def link(edges: Sequence[tuple[str, str, str]]) -> Statement[None]:
    """Insert edges, each (waiting run, run or map it waits for, policy)."""
    return Statement(
        """
        insert into holdfast.dependencies (run_id, on_id, policy)
        select * from unnest(%(run_ids)s::uuid[], %(on_ids)s::uuid[], %(policies)s::text[])
        on conflict do nothing
        """,
        {
            "run_ids": plain_array([edge[0] for edge in edges]),
            "on_ids": plain_array([edge[1] for edge in edges]),
            "policies": plain_array([edge[2] for edge in edges]),
        },
        nothing,
        together=True,
    )


class Decision(NamedTuple):
    """What to do with a waiting run: end it for a reason, release it if it has no blockers, or update its count."""

    run_id: str
    reason: str | None
    blockers: int


class Applied(NamedTuple):
    """The effect of decisions: runs that ended because they can never start, and the queues of released runs."""

    ended: list[Ended]
    released: set[str]


def _applied(found: Rows) -> Applied:
    return Applied(
        [Ended(row[0], "CANCELLED", row[2], row[3], True) for row in found if row[4]],
        {row[1] for row in found if not row[4]},
    )


_UNREACHABLE = "format('unreachable: %%s ended %%s, not in %%s', "


def decide(ended: Sequence[Ended]) -> Statement[list[Decision]]:
    """Lock the dependents of ended runs and maps, and decide about each: released, unreachable, or still waiting.

    Dependents of a run that can never start are decided in the same statement, to any depth; all are locked in one
    order. Edges that other transactions add concurrently are not seen: `recount` the dependents afterwards.
    """
    return Statement(
        """
        with recursive ended as (
            select * from unnest(%(ids)s::uuid[], %(outcomes)s::text[]) as ended (id, outcome)
        ), doomed (run_id, reason) as (
            select waiting.run_id, """
        + _UNREACHABLE
        + """ended.id, ended.outcome, dependencies.policy)
            from ended
            join holdfast.dependencies on dependencies.on_id = ended.id
            join holdfast.waiting on waiting.run_id = dependencies.run_id and waiting.blockers > 0
            where not holdfast.meets(ended.outcome, dependencies.policy)
            union
            select waiting.run_id, """
        + _UNREACHABLE
        + """doomed.run_id, 'CANCELLED', dependencies.policy)
            from doomed
            join holdfast.dependencies on dependencies.on_id = doomed.run_id and dependencies.policy <> 'always'
            join holdfast.waiting on waiting.run_id = dependencies.run_id and waiting.blockers > 0
        ), over (run_id, reason) as (
            select run_id, min(reason) from doomed group by run_id
        ), met (run_id, amount) as (
            select dependencies.run_id, count(*)
            from (select id, outcome from ended union all select run_id, 'CANCELLED' from over) as node
            join holdfast.dependencies on dependencies.on_id = node.id
            where holdfast.meets(node.outcome, dependencies.policy)
            group by dependencies.run_id
        ), held as (
            select waiting.run_id, waiting.blockers from holdfast.waiting
            where waiting.run_id in (select run_id from over union select run_id from met) and waiting.blockers > 0
            order by waiting.run_id for update
        )
        select held.run_id::text, over.reason, greatest(held.blockers - coalesce(met.amount, 0), 0)::integer
        from held left join over on over.run_id = held.run_id left join met on met.run_id = held.run_id
        """,
        {"ids": plain_array([one.id for one in ended]), "outcomes": plain_array([one.outcome for one in ended])},
        each(Decision._make),
        together=True,
    )


def hold_dependents(ids: Sequence[str]) -> Statement[list[str]]:
    """Lock the runs that wait for one of these, so that they can be recounted, and return them."""
    return Statement(
        """
        select waiting.run_id::text from holdfast.waiting
        where waiting.blockers > 0 and waiting.run_id in (
            select dependencies.run_id from holdfast.dependencies where dependencies.on_id = any(%(ids)s::uuid[]))
        order by waiting.run_id for update
        """,
        {"ids": plain_array(ids)},
        each(lambda row: str(row[0])),
        together=True,
    )


def hold_blocked(run_ids: Sequence[str]) -> Statement[list[str]]:
    """Lock the runs that still have blockers, so that they can be recounted, and return them."""
    return Statement(
        """
        select run_id::text from holdfast.waiting
        where blockers > 0 and run_id = any(%(run_ids)s::uuid[]) order by run_id for update
        """,
        {"run_ids": plain_array(run_ids)},
        each(lambda row: str(row[0])),
        together=True,
    )


def recount(run_ids: Sequence[str]) -> Statement[list[Decision]]:
    """Decide about runs from the rows alone. This transaction must already have locked or created them."""
    return Statement(
        """
        select waiting.run_id::text, edges.reason, edges.blockers
        from holdfast.waiting
        cross join lateral (
            select count(*) filter (where ending is null)::integer as blockers,
                   min("""
        + _UNREACHABLE
        + """on_id, ending, policy))
                       filter (where ending is not null and not holdfast.meets(ending, policy)) as reason
            from (select dependencies.on_id, dependencies.policy, holdfast.ending_of(dependencies.on_id) as ending
                  from holdfast.dependencies where dependencies.run_id = waiting.run_id) as edge) as edges
        where waiting.run_id = any(%(run_ids)s::uuid[]) and waiting.blockers > 0
        """,
        {"run_ids": plain_array(run_ids)},
        each(Decision._make),
        together=True,
    )


def apply(decisions: Sequence[Decision]) -> Statement[Applied]:
    """Apply decisions about runs that this transaction has locked.

    This is a separate statement because one that locks rows must not also query partitioned tables for each of them
    (see `attempts.LOWEST`).
    """
    return Statement(
        """
        with decision as (
            select * from unnest(%(run_ids)s::uuid[], %(reasons)s::text[], %(blockers)s::integer[])
                          as decision (run_id, reason, blockers)
        ), gone as (
            delete from holdfast.waiting using decision
            where waiting.run_id = decision.run_id
              and (decision.reason is not null or (decision.blockers = 0 and waiting.due_at <= holdfast.now()))
            returning waiting.run_id, waiting.due_at, waiting.rank_at, waiting.number, waiting.excused, waiting.ord,
                      waiting.queue, waiting.job_id, waiting.map_id, waiting.task, decision.reason
        ), eased as (
            update holdfast.waiting
            set blockers = decision.blockers,
                reason = case when decision.blockers > 0 then 'dependencies' when number > 1 then 'retry'
                              else 'scheduled' end
            from decision
            where waiting.run_id = decision.run_id and decision.reason is null
              and (decision.blockers > 0 or waiting.due_at > holdfast.now())
        ), released as (
            insert into holdfast.ready (run_id, rank_at, number, excused, ord, queue, job_id, map_id, task)
            select run_id, coalesce(rank_at, due_at), number, excused, ord, queue, job_id, map_id, task
            from gone where reason is null
        ), closed as (
            insert into holdfast.attempts (run_id, number, finished_at, status, outcome, reason, details)
            select gone.run_id, least(1, lowest.number) - 1, holdfast.now(), 'CANCELLED', 'CANCELLED', gone.reason,
                   '{"unreachable": true}'
            from gone """
        + LOWEST
        + """
            where gone.reason is not null
        ), counted as (
            insert into holdfast.tallies (task, kind, amount)
            select runs.task, 'CANCELLED', count(*) from gone join holdfast.runs on runs.id = gone.run_id
            where gone.reason is not null group by runs.task
        )
        select run_id::text, queue, job_id::text, map_id::text, reason is not null from gone
        """,
        {
            "run_ids": plain_array([decision.run_id for decision in decisions]),
            "reasons": text_array([decision.reason for decision in decisions]),
            "blockers": plain_array([decision.blockers for decision in decisions]),
        },
        _applied,
        together=True,
    )


class DependencyEdge(NamedTuple):
    """An edge of a run that could not start because of its dependencies, and the outcome of its target, if it ended."""

    run_id: str
    on_id: str
    policy: str
    ending: str | None


def edges_of_unreachable(ids: Sequence[str]) -> Statement[list[DependencyEdge]]:
    """Return the edges of runs that ended as unreachable and depend on these, directly or indirectly."""
    return Statement(
        """
        with recursive kept (run_id) as (
            select ending.run_id from holdfast.dependencies
            join holdfast.attempts as ending on ending.run_id = dependencies.run_id
            where dependencies.on_id = any(%(ids)s::uuid[]) and ending.outcome = 'CANCELLED'
              and ending.reopened_at is null and ending.details ->> 'unreachable' is not null
            union
            select ending.run_id from kept
            join holdfast.dependencies on dependencies.on_id = kept.run_id
            join holdfast.attempts as ending on ending.run_id = dependencies.run_id
            where ending.outcome = 'CANCELLED' and ending.reopened_at is null
              and ending.details ->> 'unreachable' is not null
        )
        select dependencies.run_id::text, dependencies.on_id::text, dependencies.policy,
               holdfast.ending_of(dependencies.on_id)
        from kept join holdfast.dependencies on dependencies.run_id = kept.run_id
        """,
        {"ids": plain_array(ids)},
        each(DependencyEdge._make),
        together=True,
    )


class Awaited(NamedTuple):
    """A run or map that another run waits for."""

    id: str
    what: str
    policy: str
    status: str


def awaited_by(run_id: str, limit: int = 5) -> Statement[list[Awaited]]:
    """Return the runs and maps that a run waits for and that have not ended."""
    return Statement(
        """
        select on_id::text, coalesce(runs.task, 'map of ' || maps.task, 'unknown'), dependencies.policy,
               case when exists (select from holdfast.leases where leases.run_id = on_id) then 'RUNNING'
                    when maps.id is not null then format('%%s of %%s open', maps.open, maps.total)
                    else 'PENDING' end
        from holdfast.dependencies
        left join holdfast.runs on runs.id = dependencies.on_id
        left join holdfast.maps on maps.id = dependencies.on_id
        where dependencies.run_id = %(run_id)s::uuid and holdfast.ending_of(dependencies.on_id) is null
        order by on_id limit %(limit)s
        """,
        {"run_id": run_id, "limit": limit},
        each(Awaited._make),
    )


def stalled(after: str, limit: int) -> Statement[tuple[list[str], str | None]]:
    """Check up to `limit` blocked runs with ids above `after`; return those with a wrong count, and the last id."""
    return Statement(
        """
        select blocked.run_id::text, edges.open <> blocked.blockers or coalesce(edges.doomed, false)
        from (select run_id, blockers from holdfast.waiting
              where blockers > 0 and run_id > %(after)s::uuid order by run_id limit %(limit)s) as blocked
        cross join lateral (
            select count(*) filter (where ending is null) as open,
                   bool_or(ending is not null and not holdfast.meets(ending, policy)) as doomed
            from (select dependencies.policy, holdfast.ending_of(dependencies.on_id) as ending
                  from holdfast.dependencies where dependencies.run_id = blocked.run_id) as edge) as edges
        order by blocked.run_id
        """,
        {"after": after, "limit": limit},
        lambda found: ([row[0] for row in found if row[1]], found[-1][0] if found else None),
    )
