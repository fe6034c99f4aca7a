-- Retention in small steps, events with stable numbers, and subscriptions that miss nothing.

-- Whether a key still points to a run of a month is read by index.
create index idempotency_keys_run on holdfast.idempotency_keys (run_id);

-- Ranges of ids whose runs were pruned, while something of them is left: edges, maps and jobs, and the table with the
-- attempts of a dropped month, whose stored results have to be noted before it goes. Steps go on where the last ended.
create table holdfast.pruned_ranges (
    low             uuid not null primary key,
    high            uuid not null,
    edges_to        uuid,
    attempts_to     uuid,
    swept_at        timestamptz,
    attempts        text
);

create index pruned_ranges_order on holdfast.pruned_ranges (swept_at nulls first, low);

-- Runs that are gone and whose results in the result store are to be removed.
create table holdfast.discarded_results (
    run_id          uuid not null primary key,
    tried_at        timestamptz
);

create index discarded_results_order on holdfast.discarded_results (tried_at nulls first, run_id);


-- A month with a live run, with an open job, or with a run that a key points to, stays. Each answer is read by index.
create or replace function holdfast.is_live(month timestamptz) returns boolean language sql
    set enable_seqscan = off set enable_bitmapscan = off as $$
    select exists (
        select from (select run_id from holdfast.ready union all select run_id from holdfast.waiting
                     union all select run_id from holdfast.leases
                     union all select id from holdfast.jobs where finished_at is null
                     union all select run_id from holdfast.idempotency_keys) as live
        where live.run_id >= holdfast.id_floor(month) and live.run_id < holdfast.id_floor(month + interval '1 month'))
$$;

-- So does a month with a run that a waiting run of another month depends on, which may want to read its result. Only
-- asked before the locks are taken: how a run ended is counted for those who wait when they begin to, or when it ends,
-- so a run that begins to wait just now loses nothing but that result.
create function holdfast.is_awaited(low uuid, high uuid) returns boolean language sql
    set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
    select exists (
        select from holdfast.dependencies join holdfast.waiting on waiting.run_id = dependencies.run_id
        where dependencies.on_id >= low and dependencies.on_id < high
          and (dependencies.run_id < low or dependencies.run_id >= high))
$$;

-- Drop the oldest month whose runs were all made before an instant and of which nothing is live. Everybody queues behind
-- a lock that is waited for, so none is waited for long; while the locks are held, liveness is asked again, by index, and
-- tables are dropped, nothing else. What is left of the month is for sweep_pruned, afterwards and in small steps. The
-- second look has to see what others have committed since the first, which only READ COMMITTED shows.
create or replace function holdfast.drop_partitions(before timestamptz) returns setof text language plpgsql
    set lock_timeout = '200ms' set timezone = 'UTC' as $$
declare
    part record;
    parent text;
    low uuid;
    high uuid;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = 'invalid_transaction_state', message = format(
            'holdfast refuses to drop partitions in a %s transaction; use READ COMMITTED',
            upper(current_setting('transaction_isolation')));
    end if;
    for part in
        select child.relname, to_date(right(child.relname, 7), 'YYYY_MM')::timestamp at time zone 'UTC' as month
        from pg_inherits join pg_class child on child.oid = inhrelid
        where inhparent = 'holdfast.runs'::regclass and child.relname ~ '_[0-9]{4}_[0-9]{2}$'
        order by 1
    loop
        low := holdfast.id_floor(part.month);
        high := holdfast.id_floor(part.month + interval '1 month');
        continue when part.month + interval '1 month' > before
                   or holdfast.is_live(part.month) or holdfast.is_awaited(low, high);
        begin
            lock table only holdfast.runs in access exclusive mode;
            lock table only holdfast.attempts, only holdfast.events, only holdfast.logs, only holdfast.steps
                in access exclusive mode nowait;
            if holdfast.is_live(part.month) then
                return;
            end if;
            foreach parent in array array['runs', 'events', 'logs', 'steps'] loop
                execute format('drop table holdfast.%I', parent || right(part.relname, 8));
            end loop;
            execute format('alter table holdfast.attempts detach partition holdfast.%I',
                'attempts' || right(part.relname, 8));
            insert into holdfast.pruned_ranges (low, high, attempts)
            values (low, high, 'attempts' || right(part.relname, 8))
            on conflict on constraint pruned_ranges_pkey
            do update set high = excluded.high, edges_to = null, attempts_to = null, swept_at = null,
                          attempts = excluded.attempts;
        exception when lock_not_available then
            return;
        end;
        return next right(part.relname, 7);
        return;
    end loop;
end $$;

-- Remove a bounded part of what pruned runs left; tells whether there is more. Runs whose ids lie in such a range may
-- have been made since, by a clock that is far off: nothing that belongs to a run that is there is touched.
create function holdfast.sweep_pruned(amount integer) returns boolean language plpgsql
    set enable_seqscan = off set enable_bitmapscan = off set lock_timeout = '200ms' as $$
declare
    part holdfast.pruned_ranges;
    upto uuid;
    ids uuid[];
    more boolean := false;
begin
    for part in select * from holdfast.pruned_ranges order by swept_at nulls first, low limit 100 for update skip locked
    loop
        begin
            select d.run_id into upto from holdfast.dependencies d
            where d.run_id >= part.low and d.run_id <= part.high and (part.edges_to is null or d.run_id > part.edges_to)
            order by d.run_id offset amount limit 1;
            delete from holdfast.dependencies d
            where d.run_id >= part.low and d.run_id <= coalesce(upto, part.high)
              and (part.edges_to is null or d.run_id > part.edges_to)
              and not exists (select from holdfast.runs r where r.id = d.run_id);
            part.edges_to := coalesce(upto, part.high);
            more := more or upto is not null;

            ids := array(select m.id from holdfast.maps m
                         where m.id between part.low and part.high
                           and not exists (select from holdfast.runs r
                                           where r.id between holdfast.job_floor(m.job_id)
                                                        and holdfast.job_ceiling(m.job_id))
                         order by m.id limit amount);
            delete from holdfast.maps where id = any (ids);
            more := more or cardinality(ids) = amount;

            ids := array(select j.id from holdfast.jobs j
                         where j.id between part.low and part.high and j.finished_at is not null
                           and not exists (select from holdfast.resources where resources.job_id = j.id)
                           and not exists (select from holdfast.runs r
                                           where r.id between holdfast.job_floor(j.id) and holdfast.job_ceiling(j.id))
                         order by j.id limit amount);
            delete from holdfast.jobs where id = any (ids) and finished_at is not null;
            more := more or cardinality(ids) = amount;

            if to_regclass('holdfast.' || quote_ident(part.attempts)) is null then
                part.attempts := null;
            else
                execute format('select run_id from holdfast.%I where $1 is null or run_id > $1 '
                               'order by run_id offset $2 limit 1', part.attempts)
                    into upto using part.attempts_to, amount * 10;
                execute format('insert into holdfast.discarded_results (run_id) select distinct run_id from holdfast.%I '
                               'where ($1 is null or run_id > $1) and ($2 is null or run_id <= $2) '
                               'and result_ref is not null on conflict do nothing', part.attempts)
                    using part.attempts_to, upto;
                part.attempts_to := upto;
                if upto is null then
                    execute format('drop table holdfast.%I', part.attempts);
                    part.attempts := null;
                else
                    more := true;
                end if;
            end if;

            if part.attempts is null and part.edges_to = part.high
               and not exists (select from holdfast.maps where id between part.low and part.high)
               and not exists (select from holdfast.jobs where id between part.low and part.high) then
                delete from holdfast.pruned_ranges where low = part.low;
            else
                update holdfast.pruned_ranges
                set edges_to = part.edges_to, attempts_to = part.attempts_to, attempts = part.attempts,
                    swept_at = holdfast.now()
                where low = part.low;
            end if;
        exception when lock_not_available then
            -- Another session holds something of it; it is tried again after all the others.
            update holdfast.pruned_ranges set swept_at = holdfast.now() where low = part.low;
        end;
    end loop;
    return more or exists (select from holdfast.pruned_ranges where swept_at is null);
end $$;


-- Whether an ending is what a dependent waited for. What was pruned had ended as it was waited for: had it not, those
-- who waited would have ended with it. A run that did not wait any more is asked about when somebody retries it.
create or replace function holdfast.meets(outcome text, policy text) returns boolean
    language sql immutable parallel safe
    return case when outcome = 'PRUNED' then true
                else case policy when 'success' then outcome = 'SUCCEEDED' when 'failure' then outcome = 'FAILED'
                                 else true end end;

-- How a run or a map has ended; null while it has not, PRUNED if it is not there.
create or replace function holdfast.ending_of(node uuid) returns text
    language sql stable parallel safe
    return coalesce(
        (select attempts.outcome from holdfast.attempts
         where attempts.run_id = node and attempts.outcome is not null and attempts.reopened_at is null),
        (select case when maps.open > 0 then null when maps.unsuccessful > 0 then 'FAILED' else 'SUCCEEDED' end
         from holdfast.maps where maps.id = node),
        case when not exists (select from holdfast.runs where runs.id = node)
              and not exists (select from holdfast.maps where maps.id = node) then 'PRUNED' end);


-- How many events of its run a FENCED event comes after; null if that could not be said when it was written.
alter table holdfast.events add column position integer;


-- Which endings a subscription wants is a matter of when they were committed, not of when their statements began.
alter table holdfast.subscriptions add column since pg_snapshot;
alter table holdfast.subscriptions alter column since set default pg_current_snapshot();
alter table holdfast.outbox add column xid xid8;
alter table holdfast.outbox alter column xid set default pg_current_xact_id();

-- A transaction that keeps the snapshot it began with may not see a subscription that was acknowledged long ago: it
-- always writes the event, and who wants it is seen when it is fanned out.
create or replace function holdfast.publish_ending() returns trigger language plpgsql as $$
begin
    if current_setting('transaction_isolation') <> 'read committed'
       or exists (select from holdfast.subscriptions) then
        insert into holdfast.outbox (run_id, number, type, at, data)
        values (new.run_id, new.number, 'RunCompleted', new.finished_at, json_build_object('status', new.outcome));
    end if;
    return null;
end $$;
