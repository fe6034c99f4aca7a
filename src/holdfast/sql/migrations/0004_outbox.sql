-- The outbox's way out: an event becomes one delivery for each subscription that wants it, and the deliveries of a
-- subscription leave in order, one holder at a time.

alter table holdfast.subscriptions
    add column pause_reason text,
    add constraint subscriptions_kind check (kind in ('redis', 'webhook'));

create table holdfast.deliveries (
    id              bigint not null primary key generated always as identity,
    subscription_id uuid not null references holdfast.subscriptions on delete cascade,
    run_id          uuid not null,
    number          integer not null,
    attempts        integer not null default 0,
    created_at      timestamptz not null,
    due_at          timestamptz not null,
    tried_at        timestamptz,
    ended_at        timestamptz,
    seconds         double precision,       -- how long the last try took
    response_code   integer,                -- what it was answered
    type            text not null,
    status          text not null default 'PENDING' check (status in ('PENDING', 'DELIVERED', 'FAILED')),
    error           text,
    event           json not null,
    constraint deliveries_once unique (subscription_id, run_id, number, type),
    constraint deliveries_ended check ((status = 'PENDING') = (ended_at is null))
);

create index deliveries_pending on holdfast.deliveries (subscription_id, id) where status = 'PENDING';
create index deliveries_past on holdfast.deliveries (created_at);

-- Who delivers for a subscription now. Kept apart from the subscription: endings read that table, and must not walk
-- over its old versions.
create table holdfast.publishing (
    subscription_id uuid not null primary key references holdfast.subscriptions on delete cascade,
    holder          uuid not null,
    held_until      timestamptz not null
);

-- A run that ends without an attempt (cancelled while pending, or because what it depends on can no longer happen) is
-- ended by several operations; its event is written here, once for all of them, and in their transaction.
create function holdfast.publish_ending() returns trigger language plpgsql as $$
begin
    if exists (select from holdfast.subscriptions) then
        insert into holdfast.outbox (run_id, number, type, at, data)
        values (new.run_id, new.number, 'RunCompleted', new.finished_at, json_build_object('status', new.outcome));
    end if;
    return null;
end $$;

create trigger attempts_publish after insert on holdfast.attempts for each row
    when (new.number < 1 and new.outcome is not null)
    execute function holdfast.publish_ending();
