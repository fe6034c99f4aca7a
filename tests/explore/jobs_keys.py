"""Jobs with an idempotency key: two concurrent requests, repeated ones, or after the job of the key is gone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast import ops
from holdfast.domain.canonical import canonicalize
from holdfast.domain.ids import new_id, series
from holdfast.domain.jobs import NewJob
from holdfast.domain.states import Status
from holdfast.domain.values import NewRun
from holdfast.ops.create import FIRST_TASKS
from holdfast.sql.keys import JOB, NewKey
from holdfast.sql.statement import Op
from tests.explore.jobs_cases import Case, Setting
from tests.explore.jobs_programs import Part, repeated
from tests.explorer.actor import Do, Program
from tests.explorer.situations import LEASE
from tests.explorer.wire import Session

RETENTION = timedelta(days=2000)
BEFORE = -1  # the actor that created the initial state of a situation


def keyed_job(case: Case, who: int, what: str, tasks: int = 1) -> Op[Any]:
    """Request a job with the key of the case. A repeated request keeps its id."""
    job_id = case.keyed.setdefault(who, new_id())
    runs = [_run(case, id_, what, job_id) for id_ in series(job_id, FIRST_TASKS, tasks, first=True)]
    case.ids.update({f"task {n} of {who}": run.id for n, run in enumerate(runs)})
    key = NewKey("", case.key, job_id, JOB, canonicalize({"what": what})[1], LEASE)
    return ops.create_keyed_job(NewJob(job_id, what), runs, key)


def _keyed_run(case: Case, who: int) -> Op[Any]:
    """Request a run with the same key, whose payload has the same hash as that of a job."""
    case.ids.setdefault(f"run of {who}", new_id())
    return ops.submit(_run(case, case.ids[f"run of {who}"], "one", None, key=case.key, key_ttl=LEASE))


def _run(case: Case, id_: str, what: str, job_id: str | None, **more: Any) -> NewRun:
    text, payload_hash = canonicalize({"what": what})
    return NewRun(
        id=id_,
        task=case.task,
        parameters=text,
        payload_hash=payload_hash,
        queue=case.queue,
        job_id=job_id,
        **more,
    )


def _stop(case: Case, who: int) -> Program:
    """Stop the job that was created with the key."""
    job_id = case.keyed[BEFORE]
    job = yield Do(lambda: ops.stop_job(job_id, Status.CANCELLED, "enough"))
    while not (yield Do(lambda: ops.stop_some(job_id, "enough"))).done:
        pass
    return job


KEYED: dict[str, Part] = {
    "key_job": repeated("key_job", lambda case, who: keyed_job(case, who, "one"), "one"),
    "key_other_job": repeated("key_job", lambda case, who: keyed_job(case, who, "another"), "another"),
    "key_run": repeated("key_run", _keyed_run, "a run"),
    "stop_keyed": Part(_stop, _stop, "stop_keyed"),
    "prune": repeated("prune", lambda case, who: ops.prune(RETENTION)),
}


# Situations.


def made(at: Setting) -> Setting:
    """A job was created with the key."""
    at.session.run(keyed_job(at.case, BEFORE, "one"))
    return at


def _ended(at: Setting) -> Setting:
    """A job without tasks was created with the key; it has ended, and the runs of its month were pruned."""
    case = at.case
    at.session.run(keyed_job(case, BEFORE, "one", tasks=0))
    at.session.run(ops.stop_job(case.keyed[BEFORE], Status.CANCELLED, "enough"))
    at.session.execute(
        "insert into holdfast.pruned_ranges (low, high) values (%(id)s::uuid, %(id)s::uuid)",
        {"id": case.keyed[BEFORE]},
    )
    return at


def _forgotten(at: Setting) -> Setting:
    """The job is deleted as well, while its key still exists."""
    at.session.execute("delete from holdfast.jobs where id = %(id)s::uuid", {"id": _ended(at).case.keyed[BEFORE]})
    return at


KEY_SITUATIONS = {
    "keyless": lambda at: at,
    "keyed": made,
    "keyed_late": lambda at: made(at).dead(),
    "keyed_pruned": lambda at: _ended(at).dead(),
    "keyed_gone": lambda at: _forgotten(at).dead(),
    "keyed_gone_early": _forgotten,
}
GONE = ("keyed_pruned", "keyed_gone", "keyed_gone_early")  # where the key need not stand for the job before


def complaints(session: Session, case: Case) -> list[str]:
    """Check that exactly one run or job has the key, that it is complete, and that the key refers to it."""
    if not case.keyed:
        return []
    there = session.execute(
        """
        select id::text from holdfast.jobs where id = any(%(ids)s::uuid[])
        union all select id::text from holdfast.runs where id = any(%(runs)s::uuid[])
        """,
        {
            "ids": list(case.keyed.values()),
            "runs": [id_ for name, id_ in case.ids.items() if name.startswith("run of ")],
        },
    )
    known = session.execute("select run_id::text from holdfast.idempotency_keys where key = %(key)s", {"key": case.key})
    wrong = [f"one key made {len(there)} jobs and runs"] if len(there) > 1 else []
    if {row[0] for row in there} - {row[0] for row in known}:
        wrong.append(f"{there} exist, the key leads to {known}")
    tasks = session.execute(
        """
        select jobs.id::text, jobs.total, made.amount from holdfast.jobs cross join lateral (
            select count(*) from holdfast.runs where runs.job_id = jobs.id) as made (amount)
        where jobs.id = any(%(ids)s::uuid[]) and made.amount <> jobs.first_tasks
        """,
        {"ids": list(case.keyed.values())},
    )
    return wrong + [f"{row} is not whole" for row in tasks]
