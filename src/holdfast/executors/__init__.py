"""Executors run user code and turn whatever happens into an outcome. They do not use SQL.

A worker gives an executor claims and gets an outcome for each; `domain.execution` describes the interface. Every
worker has the inline executor, and its default executor if that is another one:

    inline    tiny and asynchronous tasks, in threads of the worker process (task_threads); they cannot be killed
    process   all other tasks, in child processes that are killed on timeout, on cancel, and with their worker
    ray_core  many runs on a Ray cluster, in actors; the worker holds the leases and settles (`holdfast.raycore`)
    ray_job   long runs on a Ray cluster, each as a job that takes over its lease and settles (`holdfast.rayjob`)

The process executor has one child slot per concurrent run (child_slot). A slot starts its child through a guardian
(spawning, guardian), which kills everything that the child started. Worker and child exchange messages over a channel,
and share a little memory, so that the worker knows what a child has begun and finished even if it is stuck or dead
(shared_state). In the child, `child` performs runs, `child_link` forwards their requests to the worker, and
`child_usage` decides when the process has to be replaced. The worker of a Ray job forks its child before it imports
what it needs itself (early_child, forked).

All use `performing`, in the process that calls the task, to turn what it returned or raised into an outcome; `pace`
decides how many runs to hold. `output` and `raw_output` turn what runs print into lines of the worker's log.
"""
