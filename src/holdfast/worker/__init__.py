"""The worker: claims runs, has them performed, settles how they ended, and keeps its leases meanwhile.

    supervisor   the life of a worker: start, serve, drain, stop
    exchange     the loop of turns at the database: settle what ended, take what fits
    turn         one such turn, as an operation
    picker       where to look for runs
    completion   endings on their way to the database
    tenure       the life of one worker id; a fresh one after the worker was fenced
    renewal      says that the worker lives, from a thread of its own
    desk         answers what running attempts ask for
    upkeep       services that every worker runs for all: rescue, fold, prune
    shutdown     signals

Connections to the database: one for turns and the desk, one for renewals, one for upkeep while it has something to do,
one to listen; four at most, none of them known to a child process. A task that asks for its run's own transaction
opens one more in the process it runs in.
"""

from holdfast.worker.options import WorkerOptions
from holdfast.worker.supervisor import Worker

__all__ = ["Worker", "WorkerOptions"]
