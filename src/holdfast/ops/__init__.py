"""The operations on runs and jobs, written once and without I/O.

Each is a generator that yields statements, and can be run on any connection by a driver. Inside a caller's transaction,
it takes effect if and only if that transaction commits. Operations that settle a run lock rows in one order: its live
row first (ready, waiting or leases), then the rows they add.
"""

from holdfast.ops.cancel import cancel, cancellation
from holdfast.ops.children import diff, next_place, require_same, stored_children
from holdfast.ops.claim import (
    claim,
    claim_by_id,
    find_blocked,
    find_ready,
    forget_single_workers,
    is_claimable,
    promote,
)
from holdfast.ops.create import (
    add_join,
    add_map,
    add_tasks,
    create_job,
    create_keyed_job,
    end_held_jobs,
    find_tasks,
    get_map,
)
from holdfast.ops.depend import heal_dependencies
from holdfast.ops.explain import explain
from holdfast.ops.figures import metrics, overview
from holdfast.ops.finish import finish
from holdfast.ops.history import attempts, events, get, result
from holdfast.ops.jobs import (
    add_resource,
    get_job,
    get_task,
    list_jobs,
    list_tasks,
    ready_queues,
    resource_removed,
    resources_to_remove,
    show_job,
)
from holdfast.ops.listing import list_runs
from holdfast.ops.postpone import postpone
from holdfast.ops.prune import make_partitions, prune, results_not_removed, results_removed, results_to_remove
from holdfast.ops.rescue import find_orphans, rescue
from holdfast.ops.retry import retry, retry_failed_tasks
from holdfast.ops.stop import jobs_to_stop, stop_job, stop_some
from holdfast.ops.submit import as_submitted, submit, submit_batches, submit_many, submit_one
from holdfast.ops.take_over import take_over
from holdfast.ops.workers import deregister_worker, drain_worker, heartbeat, list_workers, register_worker, renew
