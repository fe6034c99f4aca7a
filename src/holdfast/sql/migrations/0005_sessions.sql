-- These functions switch planner methods off, so every plan in them looks astronomically expensive, and a server with
-- its default settings would compile it. Callers' own connections (`client.on`) keep their settings, so the functions
-- say it themselves.
alter function holdfast.guard_pending() set jit = off;
alter function holdfast.guard_lease() set jit = off;
alter function holdfast.guard_attempt() set jit = off;
alter function holdfast.guard_pending_left() set jit = off;
alter function holdfast.guard_lease_left() set jit = off;
alter function holdfast.start_jobs() set jit = off;
