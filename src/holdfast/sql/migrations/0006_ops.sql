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
