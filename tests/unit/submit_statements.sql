-- one run
select holdfast.now(), null::timestamptz, null, holdfast.create_run(
               %(run_id)s::uuid, %(payload_hash)s, %(task)s, %(parent_id)s::uuid, %(priority)s::smallint, %(queue)s,
               %(parameters)s, %(policy)s, %(tags)s::text[], %(child_key)s, %(concurrency_key)s, %(submitted_by)s,
               %(traceparent)s, %(deduplicates)s::boolean, false, false)

-- one run, handed over or ringing
select holdfast.now(), null::timestamptz, null, holdfast.create_run(
               %(run_id)s::uuid, %(payload_hash)s, %(task)s, %(parent_id)s::uuid, %(priority)s::smallint, %(queue)s,
               %(parameters)s, %(policy)s, %(tags)s::text[], %(child_key)s, %(concurrency_key)s, %(submitted_by)s,
               %(traceparent)s, %(deduplicates)s::boolean, true, true)

-- one run, ringing
select holdfast.now(), null::timestamptz, null, holdfast.create_run(
               %(run_id)s::uuid, %(payload_hash)s, %(task)s, %(parent_id)s::uuid, %(priority)s::smallint, %(queue)s,
               %(parameters)s, %(policy)s, %(tags)s::text[], %(child_key)s, %(concurrency_key)s, %(submitted_by)s,
               %(traceparent)s, %(deduplicates)s::boolean, true, false)

-- a batch
with made as (
    insert into holdfast.runs (id, created_at, run_after, job_id, parent_id, priority, payload_hash, task, queue,
                               parameters, policy, tags, child_key, concurrency_key, submitted_by, traceparent,
                               deduplicates)
    select given.id, holdfast.now(),
           coalesce(%(run_at)s::timestamptz, holdfast.now() + %(run_in)s::interval),
           %(job_id)s::uuid, %(parent_id)s::uuid, %(priority)s::smallint, decode(given.payload_hash, 'hex'),
           %(task)s, %(queue)s, given.parameters::json, %(policy)s::json, %(tags)s::text[], given.child_key,
           %(concurrency_key)s, %(submitted_by)s, %(traceparent)s, %(deduplicates)s
    from unnest(%(ids)s::uuid[], %(parameters)s::text[], %(payload_hashes)s::text[], %(child_keys)s::text[])
         as given (id, parameters, payload_hash, child_key)
returning id, created_at, run_after, priority, queue)
, queued as (
    insert into holdfast.ready (run_id, rank_at, number, ord, queue, task)
    select id, coalesce(run_after, created_at), 1, -priority, queue, %(task)s from made
    where coalesce(run_after <= holdfast.now(), true)
), put_off as (
    insert into holdfast.waiting (run_id, due_at, number, ord, queue, reason, task)
    select id, run_after, 1, -priority, queue, 'scheduled', %(task)s from made
    where run_after > holdfast.now()
)
, counted as (
    insert into holdfast.tallies (task, kind, amount)
    select %(task)s, 'created', count(*) from made having count(*) > 0
)
select min(created_at), min(run_after), case when count(*) < %(asked)s then array(select id::text from made) end
from made

-- one run, again
with
    made as (
        insert into holdfast.runs (id, created_at, payload_hash, task, parent_id, priority, queue, parameters,
                                   policy, tags, child_key, concurrency_key, submitted_by, traceparent,
                                   deduplicates)
select %(run_id)s::uuid, holdfast.now(), decode(%(payload_hash)s, 'hex'), %(task)s,
               %(parent_id)s::uuid, %(priority)s::smallint, %(queue)s, %(parameters)s::json, %(policy)s::json,
               %(tags)s::text[], %(child_key)s, %(concurrency_key)s, %(submitted_by)s, %(traceparent)s, %(deduplicates)s
on conflict (id) do nothing 
        returning id, created_at, run_after, priority, queue, task
    ), queued as (
        insert into holdfast.ready (run_id, rank_at, number, ord, queue, task, counted)
        select id, created_at, 1, -priority, queue, task, false from made
    )
    select created_at, run_after, null from made

-- one run, handed over or ringing, again
with
    made as (
        insert into holdfast.runs (id, created_at, payload_hash, task, parent_id, priority, queue, parameters,
                                   policy, tags, child_key, concurrency_key, submitted_by, traceparent,
                                   deduplicates)
select %(run_id)s::uuid, holdfast.now(), decode(%(payload_hash)s, 'hex'), %(task)s,
               %(parent_id)s::uuid, %(priority)s::smallint, %(queue)s, %(parameters)s::json, %(policy)s::json,
               %(tags)s::text[], %(child_key)s, %(concurrency_key)s, %(submitted_by)s, %(traceparent)s, %(deduplicates)s
on conflict (id) do nothing 
        returning id, created_at, run_after, priority, queue, task
    ), queued as (
        insert into holdfast.ready (run_id, rank_at, number, ord, queue, task, counted)
        select id, created_at, 1, -priority, queue, task, false from made where not holdfast.hand_over(id, queue, task)
        returning run_id
    ), counted as (
        insert into holdfast.tallies (task, kind, amount)
        select task, 'created', 1 from made where not exists (select from queued)
    )
    select created_at, run_after, null, case when run_id is not null then pg_notify('holdfast', queue) end
    from made left join queued on true

-- one run, ringing, again
with
    made as (
        insert into holdfast.runs (id, created_at, payload_hash, task, parent_id, priority, queue, parameters,
                                   policy, tags, child_key, concurrency_key, submitted_by, traceparent,
                                   deduplicates)
select %(run_id)s::uuid, holdfast.now(), decode(%(payload_hash)s, 'hex'), %(task)s,
               %(parent_id)s::uuid, %(priority)s::smallint, %(queue)s, %(parameters)s::json, %(policy)s::json,
               %(tags)s::text[], %(child_key)s, %(concurrency_key)s, %(submitted_by)s, %(traceparent)s, %(deduplicates)s
on conflict (id) do nothing 
        returning id, created_at, run_after, priority, queue, task
    ), queued as (
        insert into holdfast.ready (run_id, rank_at, number, ord, queue, task, counted)
        select id, created_at, 1, -priority, queue, task, false from made
    )
    select created_at, run_after, null, pg_notify('holdfast', queue) from made

-- a batch, again
with made as (
    insert into holdfast.runs (id, created_at, run_after, job_id, parent_id, priority, payload_hash, task, queue,
                               parameters, policy, tags, child_key, concurrency_key, submitted_by, traceparent,
                               deduplicates)
    select given.id, holdfast.now(),
           coalesce(%(run_at)s::timestamptz, holdfast.now() + %(run_in)s::interval),
           %(job_id)s::uuid, %(parent_id)s::uuid, %(priority)s::smallint, decode(given.payload_hash, 'hex'),
           %(task)s, %(queue)s, given.parameters::json, %(policy)s::json, %(tags)s::text[], given.child_key,
           %(concurrency_key)s, %(submitted_by)s, %(traceparent)s, %(deduplicates)s
    from unnest(%(ids)s::uuid[], %(parameters)s::text[], %(payload_hashes)s::text[], %(child_keys)s::text[])
         as given (id, parameters, payload_hash, child_key)
on conflict (id) do nothing returning id, created_at, run_after, priority, queue)
, queued as (
    insert into holdfast.ready (run_id, rank_at, number, ord, queue, task)
    select id, coalesce(run_after, created_at), 1, -priority, queue, %(task)s from made
    where coalesce(run_after <= holdfast.now(), true)
), put_off as (
    insert into holdfast.waiting (run_id, due_at, number, ord, queue, reason, task)
    select id, run_after, 1, -priority, queue, 'scheduled', %(task)s from made
    where run_after > holdfast.now()
)
, counted as (
    insert into holdfast.tallies (task, kind, amount)
    select %(task)s, 'created', count(*) from made having count(*) > 0
)
select min(created_at), min(run_after), case when count(*) < %(asked)s then array(select id::text from made) end
from made

-- one run with a key
with key as (
    insert into holdfast.idempotency_keys (scope, key, run_id, payload_hash, task, created_at, expires_at)
    values (%(scope)s, %(key)s, %(run_id)s::uuid, decode(%(payload_hash)s, 'hex'), %(task)s,
            holdfast.now(), holdfast.now() + %(key_ttl)s::interval)
    on conflict (scope, key) do nothing
    returning run_id, payload_hash, task, created_at
),
    made as (
        insert into holdfast.runs (id, created_at, payload_hash, task, parent_id, priority, queue, parameters,
                                   policy, tags, child_key, concurrency_key, submitted_by, traceparent,
                                   deduplicates)
select run_id, created_at, payload_hash, task,
               %(parent_id)s::uuid, %(priority)s::smallint, %(queue)s, %(parameters)s::json, %(policy)s::json,
               %(tags)s::text[], %(child_key)s, %(concurrency_key)s, %(submitted_by)s, %(traceparent)s, %(deduplicates)s
from key on conflict (id) do nothing 
        returning id, created_at, run_after, priority, queue, task
    ), queued as (
        insert into holdfast.ready (run_id, rank_at, number, ord, queue, task, counted)
        select id, created_at, 1, -priority, queue, task, false from made
    )
    select created_at, run_after, null from made

-- one run with a key, handed over or ringing
with key as (
    insert into holdfast.idempotency_keys (scope, key, run_id, payload_hash, task, created_at, expires_at)
    values (%(scope)s, %(key)s, %(run_id)s::uuid, decode(%(payload_hash)s, 'hex'), %(task)s,
            holdfast.now(), holdfast.now() + %(key_ttl)s::interval)
    on conflict (scope, key) do nothing
    returning run_id, payload_hash, task, created_at
),
    made as (
        insert into holdfast.runs (id, created_at, payload_hash, task, parent_id, priority, queue, parameters,
                                   policy, tags, child_key, concurrency_key, submitted_by, traceparent,
                                   deduplicates)
select run_id, created_at, payload_hash, task,
               %(parent_id)s::uuid, %(priority)s::smallint, %(queue)s, %(parameters)s::json, %(policy)s::json,
               %(tags)s::text[], %(child_key)s, %(concurrency_key)s, %(submitted_by)s, %(traceparent)s, %(deduplicates)s
from key on conflict (id) do nothing 
        returning id, created_at, run_after, priority, queue, task
    ), queued as (
        insert into holdfast.ready (run_id, rank_at, number, ord, queue, task, counted)
        select id, created_at, 1, -priority, queue, task, false from made where not holdfast.hand_over(id, queue, task)
        returning run_id
    ), counted as (
        insert into holdfast.tallies (task, kind, amount)
        select task, 'created', 1 from made where not exists (select from queued)
    )
    select created_at, run_after, null, case when run_id is not null then pg_notify('holdfast', queue) end
    from made left join queued on true

-- one run with a key, ringing
with key as (
    insert into holdfast.idempotency_keys (scope, key, run_id, payload_hash, task, created_at, expires_at)
    values (%(scope)s, %(key)s, %(run_id)s::uuid, decode(%(payload_hash)s, 'hex'), %(task)s,
            holdfast.now(), holdfast.now() + %(key_ttl)s::interval)
    on conflict (scope, key) do nothing
    returning run_id, payload_hash, task, created_at
),
    made as (
        insert into holdfast.runs (id, created_at, payload_hash, task, parent_id, priority, queue, parameters,
                                   policy, tags, child_key, concurrency_key, submitted_by, traceparent,
                                   deduplicates)
select run_id, created_at, payload_hash, task,
               %(parent_id)s::uuid, %(priority)s::smallint, %(queue)s, %(parameters)s::json, %(policy)s::json,
               %(tags)s::text[], %(child_key)s, %(concurrency_key)s, %(submitted_by)s, %(traceparent)s, %(deduplicates)s
from key on conflict (id) do nothing 
        returning id, created_at, run_after, priority, queue, task
    ), queued as (
        insert into holdfast.ready (run_id, rank_at, number, ord, queue, task, counted)
        select id, created_at, 1, -priority, queue, task, false from made
    )
    select created_at, run_after, null, pg_notify('holdfast', queue) from made

-- runs of a start time
with made as (
    insert into holdfast.runs (id, created_at, run_after, job_id, parent_id, priority, payload_hash, task, queue,
                               parameters, policy, tags, child_key, concurrency_key, submitted_by, traceparent,
                               deduplicates)
    select given.id, holdfast.now(),
           coalesce(%(run_at)s::timestamptz, holdfast.now() + %(run_in)s::interval),
           %(job_id)s::uuid, %(parent_id)s::uuid, %(priority)s::smallint, decode(given.payload_hash, 'hex'),
           %(task)s, %(queue)s, given.parameters::json, %(policy)s::json, %(tags)s::text[], given.child_key,
           %(concurrency_key)s, %(submitted_by)s, %(traceparent)s, %(deduplicates)s
    from unnest(%(ids)s::uuid[], %(parameters)s::text[], %(payload_hashes)s::text[], %(child_keys)s::text[])
         as given (id, parameters, payload_hash, child_key)
on conflict (id) do nothing returning id, created_at, run_after, priority, queue)
, queued as (
    insert into holdfast.ready (run_id, rank_at, number, ord, queue, task)
    select id, coalesce(run_after, created_at), 1, -priority, queue, %(task)s from made
    where coalesce(run_after <= holdfast.now(), true)
), put_off as (
    insert into holdfast.waiting (run_id, due_at, number, ord, queue, reason, task)
    select id, run_after, 1, -priority, queue, 'scheduled', %(task)s from made
    where run_after > holdfast.now()
)
, counted as (
    insert into holdfast.tallies (task, kind, amount)
    select %(task)s, 'created', count(*) from made having count(*) > 0
)
select min(created_at), min(run_after), case when count(*) < %(asked)s then array(select id::text from made) end
from made

-- a run of a start time, with a key
with key as (
    insert into holdfast.idempotency_keys (scope, key, run_id, payload_hash, task, created_at, expires_at)
    values (%(scope)s, %(key)s, %(run_id)s::uuid, decode(%(payload_hash)s, 'hex'), %(task)s,
            holdfast.now(), holdfast.now() + %(key_ttl)s::interval)
    on conflict (scope, key) do nothing
    returning run_id, payload_hash, task, created_at

        ), made as (
    insert into holdfast.runs (id, created_at, run_after, job_id, parent_id, priority, payload_hash, task, queue,
                               parameters, policy, tags, child_key, concurrency_key, submitted_by, traceparent,
                               deduplicates)
    select given.id, holdfast.now(),
           coalesce(%(run_at)s::timestamptz, holdfast.now() + %(run_in)s::interval),
           %(job_id)s::uuid, %(parent_id)s::uuid, %(priority)s::smallint, decode(given.payload_hash, 'hex'),
           %(task)s, %(queue)s, given.parameters::json, %(policy)s::json, %(tags)s::text[], given.child_key,
           %(concurrency_key)s, %(submitted_by)s, %(traceparent)s, %(deduplicates)s
    from unnest(%(ids)s::uuid[], %(parameters)s::text[], %(payload_hashes)s::text[], %(child_keys)s::text[])
         as given (id, parameters, payload_hash, child_key)
join key on key.run_id = given.id on conflict (id) do nothing returning id, created_at, run_after, priority, queue)
, queued as (
    insert into holdfast.ready (run_id, rank_at, number, ord, queue, task)
    select id, coalesce(run_after, created_at), 1, -priority, queue, %(task)s from made
    where coalesce(run_after <= holdfast.now(), true)
), put_off as (
    insert into holdfast.waiting (run_id, due_at, number, ord, queue, reason, task)
    select id, run_after, 1, -priority, queue, 'scheduled', %(task)s from made
    where run_after > holdfast.now()
)
, counted as (
    insert into holdfast.tallies (task, kind, amount)
    select %(task)s, 'created', count(*) from made having count(*) > 0
)
select min(created_at), min(run_after), case when count(*) < %(asked)s then array(select id::text from made) end
from made

-- runs of a job
with made as (
    insert into holdfast.runs (id, created_at, run_after, job_id, parent_id, priority, payload_hash, task, queue,
                               parameters, policy, tags, child_key, concurrency_key, submitted_by, traceparent,
                               deduplicates)
    select given.id, holdfast.now(),
           coalesce(%(run_at)s::timestamptz, holdfast.now() + %(run_in)s::interval),
           %(job_id)s::uuid, %(parent_id)s::uuid, %(priority)s::smallint, decode(given.payload_hash, 'hex'),
           %(task)s, %(queue)s, given.parameters::json, %(policy)s::json, %(tags)s::text[], given.child_key,
           %(concurrency_key)s, %(submitted_by)s, %(traceparent)s, %(deduplicates)s
    from unnest(%(ids)s::uuid[], %(parameters)s::text[], %(payload_hashes)s::text[], %(child_keys)s::text[])
         as given (id, parameters, payload_hash, child_key)
on conflict (id) do nothing returning id, created_at, run_after, priority, queue)
, job as (
    select created_at as rank_at from holdfast.jobs where id = %(job_id)s::uuid
), queued as (
    insert into holdfast.ready (run_id, rank_at, number, ord, queue, job_id, task)
    select id, rank_at, 1, -priority, queue, %(job_id)s::uuid, %(task)s from made, job
    where coalesce(run_after <= holdfast.now(), true)
), put_off as (
    insert into holdfast.waiting (run_id, due_at, rank_at, number, ord, queue, reason, job_id, task)
    select id, run_after, rank_at, 1, -priority, queue, 'scheduled', %(job_id)s::uuid, %(task)s from made, job
    where run_after > holdfast.now()
)
, counted as (
    insert into holdfast.tallies (task, kind, amount)
    select %(task)s, 'created', count(*) from made having count(*) > 0
)
select min(created_at), min(run_after), case when count(*) < %(asked)s then array(select id::text from made) end
from made

-- a run of a job, with a key
with key as (
    insert into holdfast.idempotency_keys (scope, key, run_id, payload_hash, task, created_at, expires_at)
    values (%(scope)s, %(key)s, %(run_id)s::uuid, decode(%(payload_hash)s, 'hex'), %(task)s,
            holdfast.now(), holdfast.now() + %(key_ttl)s::interval)
    on conflict (scope, key) do nothing
    returning run_id, payload_hash, task, created_at

        ), made as (
    insert into holdfast.runs (id, created_at, run_after, job_id, parent_id, priority, payload_hash, task, queue,
                               parameters, policy, tags, child_key, concurrency_key, submitted_by, traceparent,
                               deduplicates)
    select given.id, holdfast.now(),
           coalesce(%(run_at)s::timestamptz, holdfast.now() + %(run_in)s::interval),
           %(job_id)s::uuid, %(parent_id)s::uuid, %(priority)s::smallint, decode(given.payload_hash, 'hex'),
           %(task)s, %(queue)s, given.parameters::json, %(policy)s::json, %(tags)s::text[], given.child_key,
           %(concurrency_key)s, %(submitted_by)s, %(traceparent)s, %(deduplicates)s
    from unnest(%(ids)s::uuid[], %(parameters)s::text[], %(payload_hashes)s::text[], %(child_keys)s::text[])
         as given (id, parameters, payload_hash, child_key)
join key on key.run_id = given.id on conflict (id) do nothing returning id, created_at, run_after, priority, queue)
, job as (
    select created_at as rank_at from holdfast.jobs where id = %(job_id)s::uuid
), queued as (
    insert into holdfast.ready (run_id, rank_at, number, ord, queue, job_id, task)
    select id, rank_at, 1, -priority, queue, %(job_id)s::uuid, %(task)s from made, job
    where coalesce(run_after <= holdfast.now(), true)
), put_off as (
    insert into holdfast.waiting (run_id, due_at, rank_at, number, ord, queue, reason, job_id, task)
    select id, run_after, rank_at, 1, -priority, queue, 'scheduled', %(job_id)s::uuid, %(task)s from made, job
    where run_after > holdfast.now()
)
, counted as (
    insert into holdfast.tallies (task, kind, amount)
    select %(task)s, 'created', count(*) from made having count(*) > 0
)
select min(created_at), min(run_after), case when count(*) < %(asked)s then array(select id::text from made) end
from made

-- runs with dependencies
with made as (
    insert into holdfast.runs (id, created_at, run_after, job_id, parent_id, priority, payload_hash, task, queue,
                               parameters, policy, tags, child_key, concurrency_key, submitted_by, traceparent,
                               deduplicates)
    select given.id, holdfast.now(),
           coalesce(%(run_at)s::timestamptz, holdfast.now() + %(run_in)s::interval),
           %(job_id)s::uuid, %(parent_id)s::uuid, %(priority)s::smallint, decode(given.payload_hash, 'hex'),
           %(task)s, %(queue)s, given.parameters::json, %(policy)s::json, %(tags)s::text[], given.child_key,
           %(concurrency_key)s, %(submitted_by)s, %(traceparent)s, %(deduplicates)s
    from unnest(%(ids)s::uuid[], %(parameters)s::text[], %(payload_hashes)s::text[], %(child_keys)s::text[])
         as given (id, parameters, payload_hash, child_key)
on conflict (id) do nothing returning id, created_at, run_after, priority, queue)
, job as (
    select (select created_at from holdfast.jobs where id = %(job_id)s::uuid) as rank_at
), put_off as (
    insert into holdfast.waiting (run_id, due_at, rank_at, blockers, number, ord, queue, reason, job_id, task)
    select made.id, coalesce(made.run_after, made.created_at), job.rank_at, blocked.blockers, 1, -made.priority,
           made.queue, 'dependencies', %(job_id)s::uuid, %(task)s
    from made join unnest(%(ids)s::uuid[], %(blockers)s::integer[]) as blocked (id, blockers) on blocked.id = made.id
    cross join job
)
, counted as (
    insert into holdfast.tallies (task, kind, amount)
    select %(task)s, 'created', count(*) from made having count(*) > 0
)
select min(created_at), min(run_after), case when count(*) < %(asked)s then array(select id::text from made) end
from made

-- a run with dependencies, with a key
with key as (
    insert into holdfast.idempotency_keys (scope, key, run_id, payload_hash, task, created_at, expires_at)
    values (%(scope)s, %(key)s, %(run_id)s::uuid, decode(%(payload_hash)s, 'hex'), %(task)s,
            holdfast.now(), holdfast.now() + %(key_ttl)s::interval)
    on conflict (scope, key) do nothing
    returning run_id, payload_hash, task, created_at

        ), made as (
    insert into holdfast.runs (id, created_at, run_after, job_id, parent_id, priority, payload_hash, task, queue,
                               parameters, policy, tags, child_key, concurrency_key, submitted_by, traceparent,
                               deduplicates)
    select given.id, holdfast.now(),
           coalesce(%(run_at)s::timestamptz, holdfast.now() + %(run_in)s::interval),
           %(job_id)s::uuid, %(parent_id)s::uuid, %(priority)s::smallint, decode(given.payload_hash, 'hex'),
           %(task)s, %(queue)s, given.parameters::json, %(policy)s::json, %(tags)s::text[], given.child_key,
           %(concurrency_key)s, %(submitted_by)s, %(traceparent)s, %(deduplicates)s
    from unnest(%(ids)s::uuid[], %(parameters)s::text[], %(payload_hashes)s::text[], %(child_keys)s::text[])
         as given (id, parameters, payload_hash, child_key)
join key on key.run_id = given.id on conflict (id) do nothing returning id, created_at, run_after, priority, queue)
, job as (
    select (select created_at from holdfast.jobs where id = %(job_id)s::uuid) as rank_at
), put_off as (
    insert into holdfast.waiting (run_id, due_at, rank_at, blockers, number, ord, queue, reason, job_id, task)
    select made.id, coalesce(made.run_after, made.created_at), job.rank_at, blocked.blockers, 1, -made.priority,
           made.queue, 'dependencies', %(job_id)s::uuid, %(task)s
    from made join unnest(%(ids)s::uuid[], %(blockers)s::integer[]) as blocked (id, blockers) on blocked.id = made.id
    cross join job
)
, counted as (
    insert into holdfast.tallies (task, kind, amount)
    select %(task)s, 'created', count(*) from made having count(*) > 0
)
select min(created_at), min(run_after), case when count(*) < %(asked)s then array(select id::text from made) end
from made
