"""The explorer: pairs of operations through all their interleavings on a real Postgres, with crashes at every point.

Operations are generators of statements, so the explorer can decide when each statement is sent. Two actors, or three,
each with a connection of its own, take steps in every possible order. A step is a statement, as production would send
it; BEGIN belongs to the statement after it, and COMMIT is a step by itself: that is where others begin to see. A
statement that waits for a lock is recognised by `pg_blocking_pids`, and its actor stands still until the lock is free.
An impatient actor (`succeed~`) is refused the lock instead, and tries again once another's transaction has ended.

At each step an actor may crash in one of three ways:

    !   its process dies before it sends the step
    ?   the step was done, its answer was lost: the caller asks again as production would
    /   the connection is dropped inside the transaction: it is rolled back, and the caller asks again

Afterwards time passes, whatever can be rescued is rescued, a fresh worker drains everything, and the invariants are
checked, together with whether what each caller was told agrees with what came of it.

    wire         a connection whose statements are sent without waiting
    programs     what an actor does: an operation as production drives it, and what its caller does without an answer
    situations   where the run is before the actors begin
    pairs        which two programs meet in which situations
    actor        a program, step by step, with its crashes
    search       every schedule of a pair, one after the other
    schedule     a schedule as a line of text that can be replayed
    stage        plays one schedule
    drain        time passes, and everything ends
    invariants   what must hold whatever happened
    answers      what callers were told, held against what came of it
    mutation     guards taken away, to see that their absence is noticed

It does not see races inside one statement, nor drivers, sockets and threads: those belong to the chaos runs.
"""
