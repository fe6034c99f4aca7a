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
