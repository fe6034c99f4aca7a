"""More guards of jobs: of stopping, counting, maps, dependencies, publishing and resources."""

from __future__ import annotations

from tests.explore.mutants_jobs import CREATE, DEPEND
from tests.explore.mutants_jobs_keys import NAMES
from tests.explorer.mutation import SCHEMA, SQL

# As in `mutants_jobs`: a name, the guard, where it is, the removed text, its replacement, and what detects it.

# Guards whose absence was once not detected.
SURVIVORS = [
    (
        "stop-overrides",
        "the first stop decides how a job ends, and why",
        SQL,
        "and finished_at is null and cancel_requested_at is null\n            returning outcome",
        "and finished_at is null\n            returning outcome",
        "stop+stop_late@last",
    ),
    (
        "jobs-reopen-unlocked",
        "a job that ends or is stopped while it is being reopened is looked at again",
        SQL,
        "and (finished_at is not null or cancel_requested_at is null)\n            order by id for update",
        "and (finished_at is not null or cancel_requested_at is null)\n            order by id",
        "succeed_b+retry_a@loose",
    ),
    (
        "jobs-reopen-unlocked-stop",
        "the same for a stop in a transaction that is still open",
        SQL,
        "and (finished_at is not null or cancel_requested_at is null)\n            order by id for update",
        "and (finished_at is not null or cancel_requested_at is null)\n            order by id",
        "retry_a+stop_slowly@failed",
    ),
    (
        "heal-unlocked",
        "what a heal decides about is held, with all that it waits for",
        DEPEND,
        (
            "    yield from dependencies.hold((yield from dependencies.targets(stalled)))\n"
            "    held = yield from dependencies.hold_blocked(stalled)\n"
        ),
        "    held = stalled\n",
        "heal+succeed_a@miscounted",
    ),
    (
        "heal-acts",
        "a wrong count is put right",
        DEPEND,
        "    if held:\n        yield from count_jobs",
        "    if held and not held:\n        yield from count_jobs",
        "heal+succeed_b@forgotten",
    ),
    (
        "publishing-hold-stolen",
        "a subscription that another publisher has taken in the meantime is not taken again",
        SQL,
        "where publishing.held_until <= holdfast.now()\n            returning subscription_id",
        "returning subscription_id",
        "publish+publish@published",
    ),
    (
        "resource-unlocked",
        "nothing is noted for a job that is just ending",
        SQL,
        "and finished_at is null for key share",
        "and finished_at is null",
        "add_resource+succeed_a@last",
    ),
]

STOPPING = [
    (
        "stop-requests-once",
        "cancellation of an attempt is requested once",
        SQL,
        "and job_id = %(job_id)s::uuid and cancel_requested_at is null",
        "and job_id = %(job_id)s::uuid",
        "stop+stop_late@last",
    ),
    (
        "stop-sees-waiting",
        "a run that waits for its next attempt could still start",
        SQL,
        (
            "             + (select count(*) from holdfast.waiting, span where run_id between low and high\n"
            "                  and job_id = %(job_id)s::uuid)\n"
        ),
        "",
        "fail_again_a+stop@last",
    ),
    (
        "stop-holds-only-while-stopping",
        "what was reopened since is left alone",
        SQL,
        (
            "              and exists (select from holdfast.jobs where jobs.id = %(job_id)s::uuid\n"
            "                          and jobs.cancel_requested_at is not null and jobs.finished_at is null)\n"
            "\n            order by run_id limit %(limit)s for update of ready"
        ),
        "            order by run_id limit %(limit)s for update of ready",
        "go_on_stopping+retry@stopped",
    ),
    (
        "stop-withdraws-waiting",
        "a stop ends what waits as well",
        SQL,
        "select run_id::text from queued union all select run_id::text from idle\n",
        "select run_id::text from queued\n",
        "fail_again_a+stop@last",
    ),
    (
        "stop-keeps-the-outcome",
        "a stopped job ends as the stop said, however its runs end",
        SQL,
        "cancel_reason = %(reason)s, stop_outcome = %(outcome)s,",
        "cancel_reason = %(reason)s, stop_outcome = 'FAILED',",
        "succeed_a+stop@last",
    ),
]

COUNTING = [
    (
        "settle-broken",
        "a critical run that failed breaks its job",
        SQL,
        "                broken = jobs.broken + given.broken,\n",
        "",
        "fail_a+succeed_b@two",
    ),
    (
        "settle-added",
        "a run that was added with an ending is counted",
        SQL,
        "set total = jobs.total + given.added, succeeded",
        "set total = jobs.total, succeeded",
        "adding_a+add@last",
    ),
    (
        "reopen-takes-the-stop-back",
        "a job that is reopened is no longer being stopped",
        SQL,
        (
            "finished_at = null, outcome = null, cancel_requested_at = null,\n"
            "            cancel_reason = null, stop_outcome = null,"
        ),
        "finished_at = null, outcome = null,",
        "retry+claim@stopped",
    ),
    (
        "reopen-succeeded",
        "a job that succeeded in the meantime is not reopened",
        SQL,
        "where id = any(%(ids)s::uuid[]) and outcome is distinct from 'SUCCEEDED'\n",
        "where id = any(%(ids)s::uuid[])\n",
        "succeed_b+retry_a@loose",
    ),
    (
        "reopen-broken",
        "a job that is reopened is no longer broken by what was taken back",
        SQL,
        "broken = jobs.broken - given.broken, finished_at",
        "finished_at",
        "retry+retry@over",
    ),
    (
        "grow-surplus",
        "what was there before is not counted twice",
        CREATE,
        "            yield from jobs.grow(new.job_id, -1)\n",
        "            pass\n",
        "add_same+add_same@pending",
    ),
    (
        "apply-counts",
        "a run that can never start is counted as cancelled",
        SQL,
        (
            "select runs.task, 'CANCELLED', count(*) from gone join holdfast.runs on runs.id = gone.run_id\n"
            "            where gone.reason is not null group by runs.task"
        ),
        (
            "select runs.task, 'CANCELLED', count(*) from gone join holdfast.runs on runs.id = gone.run_id\n"
            "            where false group by runs.task"
        ),
        "fail_a+succeed_b@two",
    ),
]

MAPS = [
    (
        "maps-once",
        "a map that is requested twice is created once",
        SQL,
        "%(dataset)s::json)\n        on conflict (id) do nothing returning id",
        "%(dataset)s::json) returning id",
        "map+map@pending",
    ),
    (
        "maps-fail",
        "a map with a run that failed has failed",
        SQL,
        "select id::text, case when unsuccessful > 0 then 'FAILED' else 'SUCCEEDED' end from moved where open = 0",
        "select id::text, 'SUCCEEDED' from moved where open = 0",
        "chunk0+fail_chunk1@map",
    ),
    (
        "maps-unsettle",
        "a run that is open again no longer counts as unsuccessful",
        SQL,
        "set open = maps.open + given.reopened, unsuccessful = maps.unsuccessful - given.reopened",
        "set open = maps.open + given.reopened",
        "chunk1+retry@map_failed",
    ),
]

DEPENDING = [
    (
        "heal-holds-targets",
        "dependencies that a heal counts can neither end nor be reopened in the meantime",
        DEPEND,
        "    yield from dependencies.hold((yield from dependencies.targets(stalled)))\n",
        "",
        "heal+retry_a@forgotten_failure",
    ),
    (
        "recount-dooms",
        "a run that waits in vain is ended when it is counted",
        SQL,
        "filter (where ending is not null and not holdfast.meets(ending, policy)) as reason",
        "filter (where false) as reason",
        "heal+succeed_b@forgotten_failure",
    ),
    (
        "always-is-always",
        "a run that starts after any ending starts after one that could not start",
        SQL,
        "dependencies.on_id = doomed.run_id and dependencies.policy <> 'always'",
        "dependencies.on_id = doomed.run_id",
        "fail_a+succeed_b@after_all",
    ),
]

PUBLISHING = [
    (
        "publish-success",
        "a success is an event, if there is a subscription",
        SQL,
        "from gone where exists (select from holdfast.subscriptions)",
        "from gone where false",
        "fan_out+succeed_a@subscribed",
    ),
    (
        "publish-endings-only",
        "an attempt that is tried again is no ending",
        SQL,
        "from gone where outcome is not null and exists (select from holdfast.subscriptions)",
        "from gone where exists (select from holdfast.subscriptions)",
        "fan_out+fail_again_a@subscribed",
    ),
    (
        "publish-withdrawn",
        "a run that ends without an attempt is an event too",
        SCHEMA,
        "when (new.number < 1 and new.outcome is not null)\n    execute function holdfast.publish_ending();",
        "when (false)\n    execute function holdfast.publish_ending();",
        "fan_out+cancel_b@subscribed",
    ),
]

RESOURCES = [
    (
        "resources-of-ended-jobs",
        "a resource is removed only when its job has ended",
        SQL,
        "where jobs.finished_at is not null\n              and (jobs.outcome",
        "where true\n              and (jobs.outcome",
        "remove+succeed_a@kept",
    ),
    (
        "resources-once",
        "a resource is given to one at a time",
        SQL,
        "and coalesce(resources.tried_at < holdfast.now() - interval '1 minute', true)",
        "",
        "remove+remove@ended",
    ),
    (
        "resources-unlocked",
        "also if two look at the same moment",
        SQL,
        "order by resources.created_at limit %(limit)s for update of resources skip locked",
        "order by resources.created_at limit %(limit)s",
        "remove+remove@ended",
    ),
]

OWN = [
    *NAMES,
    (
        "start-note",
        "a claim that does not wait for a locked job leaves a note, so that the job starts later",
        SCHEMA,
        "where jobs.id = any (ids) and jobs.started_at is null and jobs.id not in (select id from held);",
        "where false;",
        "user_adds+claim~@pending",
    ),
    (
        "late-start-note-of-a-locked-job",
        "the note of a job that is still locked stays",
        SQL,
        "where job_id in (select id from held)",
        "where job_id in (select job_id from noted)",
        "user_adds+start_late~@noted",
    ),
    (
        "late-start-waits-for-nothing",
        "a note is removed only when its job has started",
        SQL,
        (
            "update holdfast.jobs set started_at = noted.at from noted join held on held.id = noted.job_id\n"
            "            where jobs.id = held.id and jobs.started_at is null"
        ),
        "select 1",
        "start_late+succeed_a@noted_last",
    ),
    *STOPPING,
    *COUNTING,
    *MAPS,
    *DEPENDING,
    *PUBLISHING,
    *RESOURCES,
]

# Changes that violate nothing, each with the reason.
EQUIVALENT = {
    "maps-settle-unlocked": (
        "select id from holdfast.maps where id = any(%(ids)s::uuid[]) order by id for update",
        (
            "The update locks each map itself and counts from its newest version, and it has no condition that another "
            "session could change: the counts come out the same. Locking first only makes all sessions lock several "
            "maps in one order; without it two batches could deadlock, and be tried again."
        ),
    ),
    "heal-unlocked-alone": (
        "where blockers > 0 and run_id = any(%(run_ids)s::uuid[]) order by run_id for update",
        (
            "While all that a blocked run waits for is held, its count cannot change, and what is decided about it is "
            "applied only if it still waits. Its row is held so that `recount` may rely on that alone."
        ),
    ),
}
