"""The worker: claims runs, has executors perform them, writes their results, and renews its lease meanwhile.

A worker registers a **session** under a new id and claims runs for it. The **exchange** is its main loop: each round
trip to the database writes the results that are ready and claims the runs that there is room for, in one transaction.
The **claim planner** decides when to claim and where to look. Executors perform the claims (see `holdfast.executors`)
and report how they ended; the **results** are kept until the database has acknowledged them. Meanwhile the **renewal**
thread extends the lease, and the **upkeep** services do what every worker does for the whole installation.

    supervisor        the life of a worker: register, serve, start over after it was fenced, leave
    exchange          the loop of round trips; round_trips has their operation and the overlapping second one
    claim_planner     when to look for runs, when to claim some, and from which positions of which queues
    results           from what executors report to what the database acknowledges
    pending_results   results that wait for the next round trip, are in doubt, or are deferred because of locks
    result_writer     writes results whose batch could not be written as a whole, and resolves doubts
    outages           how long to wait while the database does not respond
    session           the worker id and the claims held under it
    renewal           extends the lease, from a thread of its own; fences the worker if it cannot
    attempt_services  answers what running attempts request: progress, log lines, steps, children
    transactions      the run's own transaction, in the process that runs the task
    upkeep            services with a pace and a next due time: rescue, fold, prune, and those of the assembly
    database          a connection that is opened again after an error
    options           settings and parts, and which executor performs which task
    figures, port     metrics, and the port that serves them with liveness and readiness

A worker has at most five connections: one for round trips and attempt services, one for overlapping round trips, one
for renewals, one for upkeep and one to listen. Child processes use none of them. A task that opens its run's own
transaction uses one more connection for as long as the run lasts, in the process in which it runs.

Two rules make this safe. A result that was sent without a response is in doubt, and the worker asks whether it was
written before it sends it again. And the right to continue is counted from when the last confirmed renewal was sent: a
worker that cannot renew stops its runs before another worker can start them.
"""

from holdfast.worker.options import WorkerOptions
from holdfast.worker.supervisor import Worker

__all__ = ["Worker", "WorkerOptions"]
