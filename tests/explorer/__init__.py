"""The explorer: pairs of operations through all their interleavings on a real Postgres, with crashes at every point.

Operations are generators of statements, so the explorer can decide when each statement is sent. Two actors, or three,
each with its own connection, take steps in every possible order. A step is a statement, as production would send it;
BEGIN belongs to the statement after it, and COMMIT is a separate step, which makes changes visible to others. A
statement that waits for a lock is recognised by `pg_blocking_pids`, and its actor is blocked until the lock is free.
An actor with a lock timeout (`succeed~`) gets an error instead, and retries once another transaction has ended.

At each step an actor may crash in one of three ways:

    !   its process dies before it sends the step
    ?   the step was executed, its response was lost: the caller retries as in production
    /   the connection is dropped inside the transaction: it is rolled back, and the caller retries

Afterwards time passes, expired leases are rescued, a new worker drains everything, and the invariants are checked, as
well as whether the response of each caller agrees with what was stored.

    wire         a connection whose statements are sent without waiting
    programs     what an actor does: an operation as in production, and what its caller does without a response
    situations   the state of the run before the actors start
    pairs        which two programs meet in which situations
    actor        a program, step by step, with its crashes
    search       every schedule of a pair, one after the other
    schedule     a schedule as a line of text that can be replayed
    stage        plays one schedule
    drain        time passes, and everything ends
    invariants   what must hold in every case
    answers      the responses that callers received, compared with what was stored
    mutation     guards that are removed, to check that their absence is detected

It does not cover races inside one statement, nor drivers, sockets and threads: `tests/chaos` does.
"""
