"""Guards of jobs with an idempotency key, and of the names of children."""

from __future__ import annotations

from tests.explore.mutants_jobs import CREATE
from tests.explorer.mutation import SQL

SUBMIT, KEYS = "holdfast.ops.submit", "holdfast.sql.keys"
CHILDREN = "holdfast.ops.children"
TAKEN = "        if (yield from keys.take(key)):\n            return (yield from create_job(new, tasks))\n"

# As in `mutants_jobs`: a name, the guard, where it is, the removed text, its replacement, and what detects it.
KEYED = [
    (
        "child-fenced",
        "an attempt that has lost its run adds no child",
        CREATE,
        "    if by is not None:\n        yield from hold_attempt(by)\n    states",
        "    states",
        "name_as_old+name_as_a@reclaimed",
    ),
    (
        "keyed-job-compared",
        "a key that made one job is not accepted for another",
        CREATE,
        "if (known.task, known.payload_hash) != (key.task, key.payload_hash):",
        "if known.task != key.task:",
        "key_job+key_other_job@keyless",
    ),
    (
        "keyed-job-kind",
        "a key that made a run is refused to a job, also if their payloads have one hash",
        CREATE,
        "if (known.task, known.payload_hash) != (key.task, key.payload_hash):",
        "if known.payload_hash != key.payload_hash:",
        "key_job+key_run@keyless",
    ),
    (
        "keyed-run-kind",
        "a key that made a job is refused to a run, also if their payloads have one hash",
        SUBMIT,
        "if (known.task, known.payload_hash) != (new.task, new.payload_hash):",
        "if known.payload_hash != new.payload_hash:",
        "key_run+key_job@keyed",
    ),
    (
        "keyed-job-taken",
        "no job is made where the key is taken",
        CREATE,
        "if (yield from keys.take(key)):",
        "if (yield from keys.take(key)) or True:",
        "key_job+key_job@keyless",
    ),
    (
        "keyed-job-key-first",
        "the key is taken before its job is made",
        CREATE,
        TAKEN,
        (
            "        made = yield from create_job(new, tasks)\n"
            "        if (yield from keys.take(key)):\n            return made\n"
        ),
        "key_job+key_job@keyless",
    ),
    (
        "keyed-job-together",
        "key and job are written together: no request finds the key without the job",
        KEYS,
        "        len,\n        together=True,\n    )\n\n\ndef release(",
        "        len,\n    )\n\n\ndef release(",
        "key_job+key_job@keyless",
    ),
    (
        "keyed-job-found",
        "a request that finds the key taken is given the job that is there",
        CREATE,
        'was pruned, but its idempotency key is still stored; use a new key")\n        return found\n',
        (
            'was pruned, but its idempotency key is still stored; use a new key")\n'
            "        return (yield from create_job(new, tasks))\n"
        ),
        "key_job+key_job@keyed",
    ),
    (
        "keyed-job-waits",
        "a request that finds the key being taken waits for it, and is not refused",
        SQL,
        "on conflict (scope, key) do nothing\n        returning key",
        "returning key",
        "key_job+key_job@keyless",
    ),
    (
        "keyed-job-given-up",
        "a key past its time whose job is gone makes a new job",
        CREATE,
        "if not there and (yield from remove_stale_key(key.scope, key.key, known)):",
        "if False:",
        "key_job+prune@keyed_gone",
    ),
    (
        "keyed-job-given-up-by-another",
        "a key that another request has removed in the meantime is read again",
        SUBMIT,
        "    return (yield from keys.find(scope, key)) != known\n",
        "    return False\n",
        "key_job+key_job@keyed_gone",
    ),
    (
        "keyed-job-kept",
        "a key within its time is not given up, also if its job is gone",
        SQL,
        "and run_id = %(run_id)s::uuid and expires_at <= holdfast.now()",
        "and run_id = %(run_id)s::uuid",
        "key_job+key_other_job@keyed_gone_early",
    ),
    (
        "keyed-job-there",
        "a key past its time is not given up while its job is there",
        SQL,
        "          and not exists (select from holdfast.jobs where jobs.id = idempotency_keys.run_id)\n",
        "",
        "key_job+key_run@keyed_late",
    ),
]

NAMES = [
    (
        "name-compared",
        "a name that stands for one run is not accepted for another",
        CREATE,
        "        yield from require_same_run(new, answer.run)\n",
        "        pass\n",
        "name+name_other@pending",
    ),
    (
        "name-taken-once",
        "a name stands for one run",
        SQL,
        "on conflict (run_id, name) do nothing returning run_id",
        "on conflict (run_id, name) do update set result = excluded.result returning run_id",
        "name+name@pending",
    ),
    (
        "name-found",
        "a request that finds a name taken receives the stored child",
        CHILDREN,
        '        id_ = stored[0].what["run"] if stored else id_\n',
        "",
        "name+name@pending",
    ),
    (
        "map-compared",
        "a name that stands for one map is not accepted for another",
        CHILDREN,
        "    if asked != new.request:\n",
        "    if False:\n",
        "name_map+name_other_map@pending",
    ),
    (
        "map-found",
        "a request that finds the name of a map taken receives that map",
        CHILDREN,
        "    return map_id, False\n",
        "    return id_, True\n",
        "name_map+name_map@pending",
    ),
]
