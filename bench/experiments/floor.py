"""The floor: what Postgres does with a minimal run table and no library at all, by pgbench.

A table of its own with one partial index; insert 100 rows, claim 100, finish 100, three commits, one client. Two traps
are avoided, or the floor would lie too low: the order of the claim has a column before the key, else the planner walks
the primary key over all that was claimed before; and rows are found by `= any(array(...))`, else a plan made on the
small table hashes all of it for ever.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from functools import partial

from bench.contender import Lab, PostgresContender
from bench.contenders import Holdfast
from bench.drain import checkpoint, filled_drain
from bench.rounds import Entry, Experiment, Sample, Sizes
from holdfast.embedded.places import binaries

TABLE = """
create table run (
    id bigint generated always as identity primary key,
    queue text not null default 'default',
    priority smallint not null default 0,
    status smallint not null default 0,
    attempt smallint not null default 0,
    payload jsonb not null,
    result jsonb,
    created_at timestamptz not null default now(),
    started_at timestamptz,
    finished_at timestamptz
);
create index run_ready on run (queue, priority, id) where status = 0;
insert into run (payload) select jsonb_build_object('n', g) from generate_series(1, 1000) g;
"""
INSERT = "insert into run (payload) select p from unnest(array_fill('{\"n\": 1}'::jsonb, array[100])) p;"
CLAIM = """with taken as (
    update run set status = 1, attempt = attempt + 1, started_at = now()
    where id = any(array(select id from run where queue = 'default' and status = 0
                         order by priority, id limit 100 for update skip locked)) returning id)
select coalesce(array_agg(id), '{}') as ids from taken \\gset"""
FINISH = """update run set status = 2, finished_at = now(), result = '{"ok": 1}'
where id = any(:ids::bigint[]) and status = 1;"""


class Floor(PostgresContender):
    name = "floor"
    config = "pgbench, one client, prepared statements"

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab)
        self.versions = {}

    def make_schema(self, url: str) -> None:
        subprocess.run([binaries() / "psql", "-qX", "-v", "ON_ERROR_STOP=1", "-c", TABLE, url], check=True)


def lifecycle(contender: Floor, seconds: int) -> Sample:
    contender.fresh()
    checkpoint(contender)
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write("\n".join([INSERT, CLAIM.replace("\n", " "), FINISH.replace("\n", " ")]) + "\n")
        script.flush()
        options = ["-n", "-M", "prepared", "-c", "1", "-T", str(seconds), "-D", "ids={}", "-f", script.name]
        ran = subprocess.run(
            [binaries() / "pgbench", *options, contender.url], check=True, capture_output=True, text=True
        )
    found = re.search(r"tps = ([\d.]+) \(without", ran.stdout)
    if found is None:
        raise RuntimeError(f"pgbench said no rate:\n{ran.stdout}")
    return {"rate": 100 * float(found[1])}


def lifecycles(lab: Lab, sizes: Sizes) -> list[Entry]:
    return [
        Entry("holdfast", Holdfast(lab), partial(filled_drain, total=sizes.inline)),
        Entry("floor", Floor(lab), partial(lifecycle, seconds=sizes.floor_seconds)),
    ]


EXPERIMENTS = (Experiment("floor", "insert, claim and finish by hundreds, compared with pgbench", lifecycles),)
