-- Tokens of the HTTP API. The secret itself is never stored: it is 256 random bits, so its plain SHA-256 is enough.

create table holdfast.tokens (
    id              uuid not null primary key,
    name            text not null check (length(name) between 1 and 64),
    digest          bytea not null unique check (octet_length(digest) = 32),
    hint            text not null check (length(hint) = 4),             -- the secret's last characters, to tell tokens apart
    scopes          text[] not null check (cardinality(scopes) > 0
                        and scopes <@ array['runs:read', 'runs:write', 'operate', 'admin']),
    created_at      timestamptz not null,
    created_by      text not null,
    expires_at      timestamptz check (expires_at > created_at),
    revoked_at      timestamptz,
    last_used_at    timestamptz
) with (fillfactor = 70);


-- Who reopens a run takes an ending back; counting that keeps the summary by status exact, whatever reopened it.

create function holdfast.count_reopened() returns trigger language plpgsql as $$
begin
    insert into holdfast.tallies (task, kind, amount)
    select runs.task, 'reopened ' || new.outcome, 1 from holdfast.runs where runs.id = new.run_id;
    return null;
end $$;

create trigger attempts_reopened_counted after update on holdfast.attempts for each row
    when (old.reopened_at is null and new.reopened_at is not null)
    execute function holdfast.count_reopened();
