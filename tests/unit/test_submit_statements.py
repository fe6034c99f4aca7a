"""The statements of a submit are composed from parts. Each composed form is stored as text, so that it can be read.

After a change: python -m tests.unit.test_submit_statements
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from holdfast.domain.values import Dependency, NewRun, Payload
from holdfast.sql import submissions
from holdfast.sql.statement import Statement

KEPT = Path(__file__).with_name("submit_statements.sql")
ID = "01890a5d-ac96-774b-bcce-b302099a8057"
PLAIN = NewRun(ID, "work", "{}", "ab" * 32)
PAYLOAD = Payload(ID, "{}", "ab" * 32)
# Runs that are not due immediately, or that belong to a job or have dependencies.
OTHERS = {
    "of a start time": replace(PLAIN, run_after=timedelta(minutes=1)),
    "of a job": replace(PLAIN, job_id=ID),
    "with dependencies": replace(PLAIN, depends_on=(Dependency(ID),)),
}


def forms() -> Iterator[tuple[str, Statement[Any]]]:
    for again in (False, True):
        repeated = ", again" if again else ""
        yield f"one run{repeated}", submissions.insert_one(PLAIN, PAYLOAD, again=again)
        yield (
            f"one run, handed over or ringing{repeated}",
            submissions.insert_one(PLAIN, PAYLOAD, ring=True, again=again),
        )
        ringing = submissions.insert_one(PLAIN, PAYLOAD, ring=True, again=again, together=True)
        yield f"one run, ringing{repeated}", ringing
        yield f"a batch{repeated}", submissions.insert_batch(PLAIN, [PAYLOAD], again=again)
    for ring in (False, True):
        keyed = replace(PLAIN, key="k", ring=ring)
        yield "one run with a key" + (", handed over or ringing" if ring else ""), submissions.insert_keyed(keyed)
    ringing = submissions.insert_keyed(replace(PLAIN, key="k", ring=True), together=True)
    yield "one run with a key, ringing", ringing
    for name, new in OTHERS.items():
        yield f"runs {name}", submissions.insert([new])
        yield f"a run {name}, with a key", submissions.insert_keyed(replace(new, key="k"))


def text() -> str:
    return "\n\n".join(f"-- {name}\n{statement.sql.strip()}" for name, statement in forms()) + "\n"


def test_composed_statements_match_the_stored_text() -> None:
    assert text() == KEPT.read_text("utf-8"), "write it anew: python -m tests.unit.test_submit_statements"


def test_single_run_is_written_by_the_same_statement_however_it_is_submitted() -> None:
    assert submissions.insert([PLAIN]).sql == submissions.insert_one(PLAIN, PAYLOAD).sql
    assert submissions.insert([replace(PLAIN, ring=True)]).sql == submissions.insert_one(PLAIN, PAYLOAD, ring=True).sql


if __name__ == "__main__":
    KEPT.write_text(text(), "utf-8")
