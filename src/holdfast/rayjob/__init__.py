"""The entrypoint of a Ray job: a worker of one run.

    python -m holdfast.rayjob RUN_ID NUMBER WORKER_ID

It takes the attempt over from the worker that submitted the job, renews its lease, executes it in a child process, and
settles it. Everything but these ids comes from the environment of the Ray node and from the database: what is passed
through Ray's job API can be read by everyone who may list jobs. A job that starts late, twice, or after its attempt was
lost is refused, and the refusal is recorded as an event of the run.

Every job pays for its start, so the child is forked first, and loads the tasks while the worker imports the rest.
"""

EXECUTOR = "ray_job"
