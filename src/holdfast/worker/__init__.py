"""The worker: claims runs, has them performed, settles how they ended, and keeps its leases meanwhile.

    supervisor   the life of a worker: start, serve, start over, stop
    exchange     the loop of turns at the database: settle what ended, take what fits
    turn         one such turn, as an operation
    planner     when to look for runs, and when to take some; picker says where
    results      from what executors report to what the database has accepted; completion gathers them
    writing      results whose batch could not be written as a whole; deferred keeps what has to wait
    session       the life of one worker id; a fresh one after the worker was fenced
    renewal      says that the worker lives, from a thread of its own
    attempt_services         answers what running attempts ask for
    transactions the run's own transaction, in the process that runs the task
    upkeep       services that every worker does for all: rescue, fold, prune
    shutdown     signals, and the time that runs are given to end

Connections to the database: one for round trips and attempt services, one for renewals, one for upkeep, one to listen;
four at most, none of them known to a child process. A task that asks for its run's own transaction opens one more, for
as long as that run lasts, in the process it runs in.

Two rules keep it honest. Whatever was sent without an answer is in doubt, and is asked about before it is sent again.
And the right to go on is counted from when the last confirmed renewal was sent: who cannot renew stops what it runs
before anybody else can have begun it.
"""

from holdfast.worker.options import WorkerOptions
from holdfast.worker.supervisor import Worker

__all__ = ["Worker", "WorkerOptions"]
