-- Only runs that take part in deduplication are found by their payload, so only they are in the index by payload. Its keys
-- are random, and it was the most expensive index of a submit. Runs created before this migration, or by the previous
-- release, take part.

alter table holdfast.runs add column deduplicates boolean not null default true;

drop index holdfast.runs_payload_hash;
create index runs_deduplicating on holdfast.runs (payload_hash, created_at) where deduplicates;

-- A lease can move once: from the worker that claimed the run to the process that executes it, such as a Ray job.

alter table holdfast.leases add column claimed_by uuid;     -- set when another worker takes over the lease

drop trigger leases_never_move on holdfast.leases;
create trigger leases_never_move after update on holdfast.leases for each row
    when ((old.run_id, old.number, old.excused, old.claimed_at)
          is distinct from (new.run_id, new.number, new.excused, new.claimed_at)
          or (old.cancel_requested_at is not null and new.cancel_requested_at is distinct from old.cancel_requested_at)
          or ((old.worker_id, old.claimed_by) is distinct from (new.worker_id, new.claimed_by)
              and (old.claimed_by is not null
                   or new.claimed_by is distinct from old.worker_id
                   or new.worker_id = old.worker_id
                   or new.cancel_requested_at is not null)))
    execute function holdfast.refuse('a lease is taken over once, before a cancel, and a cancel is never taken back');

-- Like a claim, a take-over is accepted only for a worker that is alive at that moment.
create function holdfast.guard_take_over() returns trigger language plpgsql as $$
begin
    if not exists (select from holdfast.workers w
                   where w.id = new.worker_id and w.stopped_at is null
                     and w.expires_at > holdfast.now() + (clock_timestamp() - statement_timestamp())) then
        perform holdfast.refuse_run(new.run_id, 'let a worker that is not there take a lease over');
    end if;
    return null;
end $$;

create trigger leases_taken_over after update on holdfast.leases for each row
    when (old.worker_id is distinct from new.worker_id)
    execute function holdfast.guard_take_over();

-- Workers that have nothing to do. The statement that creates a run may lease it to one of them immediately, and notify
-- that worker on its own channel. Each worker has one row, which both sides only update: such an update changes no index,
-- and the next update cleans up the page, without vacuum.

create table holdfast.waiting_workers (
    worker_id       uuid not null primary key,
    since           timestamptz,            -- null: it is busy, or was given a run
    listener        integer not null,       -- the server process of the connection on which it listens
    channel         text not null
) with (fillfactor = 50);

-- Lease a run that the calling statement has just created to a waiting worker: the one that has waited longest of those
-- that are alive, have an open notification connection, are not draining, serve the queue, have registered the task, and
-- have no older run of this queue to execute first. An open connection holds an advisory lock, which no other session can
-- share; looking for its process in pg_stat_activity takes 30 µs or more, because that reads the state of every process.
-- The time that the statement has taken so far counts too, because a lease is rejected if its worker has expired by then.
-- A worker that has stopped no longer has a row, even if the statement began earlier, and it cannot stop while its row is
-- locked. The notification contains the claim; if the claim is too long, the worker reads it from the database. Workers
-- trust such a claim, so only the owner may call this function, which the two functions below do.
create function holdfast.lease_to_waiting_worker(made uuid, its_queue text, its_task text, claim text) returns boolean
    language plpgsql as $$
declare
    given record;
begin
    update holdfast.waiting_workers set since = null
    where worker_id = (
        select waits.worker_id
        from holdfast.waiting_workers as waits join holdfast.workers on workers.id = waits.worker_id
        where waits.since is not null
          and workers.expires_at > holdfast.now() + (clock_timestamp() - statement_timestamp()) + interval '1 second'
          and workers.drain_requested_at is null
          and its_task = any (workers.tasks)
          and (workers.queues is null or its_queue = any (workers.queues))
          and not exists (select from holdfast.queues where queues.name = its_queue and queues.paused_at is not null)
          and not exists (select from holdfast.ready where ready.queue = its_queue and ready.task = any (workers.tasks))
          and not pg_try_advisory_xact_lock_shared(18431207, waits.listener)
        order by waits.since limit 1
        for update of waits skip locked)
    returning worker_id, channel into given;
    if not found then
        return false;
    end if;
    insert into holdfast.leases (run_id, worker_id, claimed_at, number)
    values (made, given.worker_id, holdfast.now(), 1);
    perform pg_notify(given.channel, given.worker_id || case when octet_length(claim) < 7900 then claim else '' end);
    return true;
end $$;

revoke execute on function holdfast.lease_to_waiting_worker(uuid, text, text, text) from public;

-- The claim of a run's first attempt, as a worker reads it from a notification.
create function holdfast.first_claim(id uuid, task text, queue text, parameters text, payload_hash text, policy text,
                                     traceparent text, priority smallint, created_at timestamptz) returns text
    language sql stable parallel safe
    return json_build_array(id, 1, 0, task, queue, parameters, payload_hash, policy, 0, 0, null, traceparent, -priority,
                            created_at::text)::text;

-- Hand over a run that an earlier part of the calling statement has created; for any other run, the guards reject this.
-- Every role may call this, so it clears `holdfast.creating` (see below), with which a caller could disable the guards.
-- This is a function because an insert into leases calls its guards even if it inserts nothing, and most submits find no
-- waiting worker. It runs with the owner's rights, so that roles that submit need to neither write leases nor read the
-- channels of workers.
create function holdfast.hand_over(made uuid, its_queue text, its_task text) returns boolean language plpgsql
    security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
begin
    if not exists (select from holdfast.waiting_workers where since is not null) then
        return false;
    end if;
    perform set_config('holdfast.creating', '', true);
    return coalesce((select holdfast.lease_to_waiting_worker(
                                made, its_queue, its_task,
                                holdfast.first_claim(id, task, queue, parameters::text, encode(payload_hash, 'hex'),
                                                     policy::text, traceparent, priority, created_at))
                     from holdfast.runs where id = made), false);
end $$;

-- The guards of ready and waiting each check only the other tables that a run can be in, and stop at the first one that
-- contains it. The previous guard, which both tables shared, checked four tables in one query and took 15 % of the server's
-- time for a single submit. A guard whose statement inserted no rows checks nothing.
create function holdfast.guard_ready() returns trigger language plpgsql
    set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    ids uuid[] := array(select run_id from arrived order by run_id);
    lowest uuid := ids[1];
    highest uuid := ids[cardinality(ids)];
begin
    if ids = '{}' then
        return null;
    end if;
    if exists (select from holdfast.leases where run_id = any (ids))
       or exists (select from holdfast.waiting where run_id = any (ids))
       or exists (select from holdfast.attempts
                  where run_id between lowest and highest and run_id = any (ids)
                    and outcome is not null and reopened_at is null) then
        perform holdfast.refuse_pending(ids);
    end if;
    return null;
end $$;

create function holdfast.guard_waiting() returns trigger language plpgsql
    set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    ids uuid[] := array(select run_id from arrived order by run_id);
    lowest uuid := ids[1];
    highest uuid := ids[cardinality(ids)];
begin
    if ids = '{}' then
        return null;
    end if;
    if exists (select from holdfast.leases where run_id = any (ids))
       or exists (select from holdfast.ready where run_id = any (ids))
       or exists (select from holdfast.attempts
                  where run_id between lowest and highest and run_id = any (ids)
                    and outcome is not null and reopened_at is null) then
        perform holdfast.refuse_pending(ids);
    end if;
    return null;
end $$;

create function holdfast.refuse_pending(ids uuid[]) returns void language plpgsql as $$
begin
    perform holdfast.refuse_run(
        (select id from unnest(ids) as id
         where exists (select from holdfast.leases where run_id = id)
            or exists (select from holdfast.attempts
                       where run_id = id and outcome is not null and reopened_at is null)
            or (exists (select from holdfast.ready where run_id = id)
                and exists (select from holdfast.waiting where run_id = id)) limit 1),
        'queue a run that is queued already, is running or has ended');
end $$;

-- A run that `create_run` creates is in no other table, because its id is new, so these guards have nothing to check. They
-- took a third of the server's time for a single submit, and half of it if the run was handed over.
drop trigger ready_guard on holdfast.ready;
drop trigger waiting_guard on holdfast.waiting;
drop trigger leases_guard on holdfast.leases;
drop trigger leases_start_jobs on holdfast.leases;
create trigger ready_guard after insert on holdfast.ready referencing new table as arrived
    for each statement when (coalesce(current_setting('holdfast.creating', true), '') = '')
    execute function holdfast.guard_ready();
create trigger waiting_guard after insert on holdfast.waiting referencing new table as arrived
    for each statement execute function holdfast.guard_waiting();
create trigger leases_guard after insert on holdfast.leases referencing new table as arrived
    for each statement when (coalesce(current_setting('holdfast.creating', true), '') = '')
    execute function holdfast.guard_lease();
create trigger leases_start_jobs after insert on holdfast.leases referencing new table as arrived
    for each statement when (coalesce(current_setting('holdfast.creating', true), '') = '')
    execute function holdfast.start_jobs();
drop function holdfast.guard_pending();

-- A single run is counted as created when it leaves the queue, together with the others that leave it in the same statement;
-- until then, the counters include the runs in `ready` that are not counted. A tally for each run took a tenth of the log that
-- a run writes. Batches, and the previous release, count their runs when they create them.
alter table holdfast.ready add column counted boolean not null default true;

create function holdfast.count_created() returns trigger language plpgsql as $$
begin
    insert into holdfast.tallies (task, kind, amount)
    select task, 'created', count(*) from departed where not counted group by task;
    return null;
end $$;

create trigger ready_counted after delete on holdfast.ready referencing old table as departed
    for each statement execute function holdfast.count_created();

-- Create a run that is due now, has no job and no dependencies, and is certainly new: if it exists, this fails. Hand it
-- over to a waiting worker, or queue it and notify the workers that listen. Return whether any worker was notified. The
-- setting disables the guards for this run. It applies only within this function, because an error resets it too. (Only a
-- superuser may attach a setting of this kind to a function.) The function runs with the owner's rights for the same reason
-- as `hand_over`; `holdfast db grants` grants it to roles that submit.
create function holdfast.create_run(
    new_id uuid, new_payload_hash text, new_task text, new_parent_id uuid, new_priority smallint, new_queue text,
    new_parameters text, new_policy text, new_tags text[], new_child_key text, new_concurrency_key text,
    new_submitted_by text, new_traceparent text, new_deduplicates boolean, notifies boolean, hands_over boolean
) returns boolean language plpgsql
    security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
declare
    creating text := set_config('holdfast.creating', 'a run', true);
    notified boolean := false;
begin
    insert into holdfast.runs (id, created_at, payload_hash, task, parent_id, priority, queue, parameters, policy, tags,
                               child_key, concurrency_key, submitted_by, traceparent, deduplicates)
    values (new_id, holdfast.now(), decode(new_payload_hash, 'hex'), new_task, new_parent_id, new_priority, new_queue,
            new_parameters::json, new_policy::json, new_tags, new_child_key, new_concurrency_key, new_submitted_by,
            new_traceparent, new_deduplicates);
    if hands_over then
        notified := exists (select from holdfast.waiting_workers where since is not null);
    end if;
    if notified then
        notified := holdfast.lease_to_waiting_worker(
                        new_id, new_queue, new_task,
                        holdfast.first_claim(new_id, new_task, new_queue, new_parameters, new_payload_hash, new_policy,
                                             new_traceparent, new_priority, holdfast.now()));
    end if;
    if notified then
        insert into holdfast.tallies (task, kind, amount) values (new_task, 'created', 1);
    else
        insert into holdfast.ready (run_id, rank_at, number, ord, queue, task, counted)
        values (new_id, holdfast.now(), 1, -new_priority, new_queue, new_task, false);
        if notifies then
            perform pg_notify('holdfast', new_queue);
            notified := true;
        end if;
    end if;
    creating := set_config('holdfast.creating', '', true);
    return notified;
end $$;

revoke execute on function holdfast.create_run(uuid, text, text, uuid, smallint, text, text, text, text[], text, text, text,
                                               text, boolean, boolean, boolean) from public;
