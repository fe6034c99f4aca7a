-- Workers make and drop monthly tables, which only their owner may do. A worker's role need not be the owner: these three
-- run with the rights of the owner, whom nobody can make do anything else, and only roles that were granted it may call
-- them (holdfast db grants worker).
alter function holdfast.make_partitions(timestamptz) security definer set search_path = pg_catalog, pg_temp;
alter function holdfast.drop_partitions(timestamptz) security definer set search_path = pg_catalog, pg_temp;
alter function holdfast.sweep_pruned(integer) security definer set search_path = pg_catalog, pg_temp;

revoke execute on function holdfast.make_partitions(timestamptz) from public;
revoke execute on function holdfast.drop_partitions(timestamptz) from public;
revoke execute on function holdfast.sweep_pruned(integer) from public;
revoke execute on function holdfast.guard_partition(text) from public;
