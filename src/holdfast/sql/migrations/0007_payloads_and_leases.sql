-- Only runs that take part in deduplication are found by their payload, so only they are in the index by payload: its keys
-- are random, and it was the most expensive index of a submit. Runs made before this migration, and by the release before
-- it, take part.

alter table holdfast.runs add column deduplicates boolean not null default true;

drop index holdfast.runs_payload_hash;
create index runs_deduplicating on holdfast.runs (payload_hash, created_at) where deduplicates;

-- A lease can move once: from the worker that claimed the run to the process that executes it, such as a Ray job.

alter table holdfast.leases add column claimed_by uuid;     -- set when another worker takes the lease over

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

-- Like a claim, a take-over is written only for a worker that is there at that moment.
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

-- A worker that has nothing to do waits for a run: the statement that makes one may lease it to this worker at once, and
-- notify it on its own channel. A worker has one row here, and both sides only update it: such an update touches no index,
-- and its page is cleaned up by the next one, without vacuum.

create table holdfast.waiting_workers (
    worker_id       uuid not null primary key,
    since           timestamptz,            -- null: it has work to do, or was given a run
    listener        integer not null,       -- the server process of the connection on which it listens
    channel         text not null
) with (fillfactor = 50);

-- Lease a run, which the calling statement has just made, to the worker that waits longest, among those that may have it:
-- alive, with an open connection to be notified on, not draining, with this queue and this task, and without an older run
-- of this queue to do first. The time that the statement has taken so far counts as well, because a lease is rejected if its
-- worker has expired by then. A worker that stopped has no row any more, even if the statement began before. The
-- notification is the claim; if that is too long, the worker reads it. This is a function because an insert into leases
-- calls guards even if it inserts nothing, and most submits find no worker that waits; and it is the owner's, so that roles
-- that submit can neither write leases nor read the channels of workers. Called for any other run, the guards reject it.
create function holdfast.hand_over(made uuid, its_queue text, its_task text) returns boolean language plpgsql
    security definer set search_path = pg_catalog, pg_temp as $$
declare
    given record;
    claim text;
begin
    if not exists (select from holdfast.waiting_workers where since is not null) then
        return false;
    end if;
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
          and exists (select from pg_stat_get_activity(waits.listener))
        order by waits.since limit 1
        for update of waits skip locked)
    returning worker_id, channel into given;
    if not found then
        return false;
    end if;
    insert into holdfast.leases (run_id, worker_id, claimed_at, number)
    values (made, given.worker_id, holdfast.now(), 1);
    select json_build_array(id, 1, 0, task, queue, parameters::text, encode(payload_hash, 'hex'), policy::text, 0, 0, null,
                            traceparent, -priority, created_at::text)::text
    into claim from holdfast.runs where id = made;
    perform pg_notify(given.channel, given.worker_id || case when octet_length(claim) < 7900 then claim else '' end);
    return true;
end $$;
