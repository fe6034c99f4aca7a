-- An idempotency key lives at least as long as what it made: it no longer goes before its run, so what keeps a month is
-- only a key whose time is not over. No key ever points to an older run than the moment it was taken at, so this need
-- not be asked again under the locks of drop_partitions.

create or replace function holdfast.is_live(month timestamptz) returns boolean language sql
    set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
    select exists (
        select from (select run_id from holdfast.ready union all select run_id from holdfast.waiting
                     union all select run_id from holdfast.leases
                     union all select id from holdfast.jobs where finished_at is null) as live
        where live.run_id >= holdfast.id_floor(month) and live.run_id < holdfast.id_floor(month + interval '1 month'))
$$;

create or replace function holdfast.is_awaited(low uuid, high uuid) returns boolean language sql
    set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
    set jit = off as $$
    select exists (
        select from holdfast.dependencies join holdfast.waiting on waiting.run_id = dependencies.run_id
        where dependencies.on_id >= low and dependencies.on_id < high
          and (dependencies.run_id < low or dependencies.run_id >= high))
    or exists (
        select from holdfast.idempotency_keys as keys
        where keys.run_id >= low and keys.run_id < high and keys.expires_at > holdfast.now())
$$;

-- Workers make and drop monthly tables, which only the owner of the tables may do. So that a worker's role need not be the
-- owner, these three functions run with the owner's privileges. Only roles that were granted it may call them (holdfast db
-- grants worker), and every name in them is qualified.
alter function holdfast.make_partitions(timestamptz) security definer set search_path = pg_catalog, pg_temp;
alter function holdfast.drop_partitions(timestamptz) security definer set search_path = pg_catalog, pg_temp;
alter function holdfast.sweep_pruned(integer) security definer set search_path = pg_catalog, pg_temp;

revoke execute on function holdfast.make_partitions(timestamptz) from public;
revoke execute on function holdfast.drop_partitions(timestamptz) from public;
revoke execute on function holdfast.sweep_pruned(integer) from public;
revoke execute on function holdfast.guard_partition(text) from public;
