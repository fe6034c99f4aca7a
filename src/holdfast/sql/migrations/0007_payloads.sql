-- Only runs that take part in deduplication are found by their payload, so only they are in the index by payload: its keys
-- are random, and it was the most expensive index of a submit. Runs made before this migration, and by the release before
-- it, take part.

alter table holdfast.runs add column deduplicates boolean not null default true;

drop index holdfast.runs_payload_hash;
create index runs_deduplicating on holdfast.runs (payload_hash, created_at) where deduplicates;
