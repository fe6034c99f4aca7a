"""The parts of a worker, built from the settings: executors, doorbell, result store and limits."""

from __future__ import annotations

import gc
import os
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.domain.doorbell import Listener
from holdfast.domain.errors import ConfigurationError
from holdfast.domain.execution import INLINE, ChildLimits, Executor, Limits
from holdfast.domain.tasks import load_modules
from holdfast.domain.values import NewRun, StoredResult
from holdfast.executors.output import about_current_run
from holdfast.observe import emit
from holdfast.observe.capture import adopt_logging
from holdfast.observe.logs import log_events, process_log
from holdfast.runtime.runtime import Runtime
from holdfast.runtime.settings import Settings, masked
from holdfast.worker import Worker, WorkerOptions
from holdfast.worker.figures import Figures

INLINE_SLOTS = 10
LOCAL_EXECUTORS = frozenset({INLINE, "process"})
# The worker looks for reference cycles after this many new objects, instead of Python's default.
COLLECT_AFTER = 10_000
DEFAULT_THRESHOLDS = (700, 2000)  # before and since Python 3.13


@dataclass(frozen=True)
class WorkerRequest:
    """The options of one worker that are not settings, such as the arguments of `holdfast worker`."""

    queues: tuple[str, ...] | None = None
    slots: int | None = None
    executor: str = "process"
    tasks: tuple[str, ...] = ()
    name: str = ""
    until_empty: bool = False
    health_port: int | None = None
    poll_seconds: float | None = None
    cluster: str | None = None


def run_worker(settings: Settings, request: WorkerRequest) -> None:
    """Work until stopped; with `until_empty`, until the queues have no more runs for this worker."""
    # A worker for one run has no services, and their modules take a sixth of the time that all its imports take.
    from holdfast.assembly.services import services

    settings = replace(settings, tasks=(*settings.tasks, *request.tasks))
    with _opened(settings, request) as runtime:
        options = replace(worker_options(runtime, request), services=services(runtime))
        port = settings.worker_port if request.health_port is None else request.health_port
        load_modules(options.task_modules)
        _collect_garbage_less_often()
        if port is None:
            Worker(options).run(_loop_factory(options))
        else:
            _run_with_port(options, settings.worker_host, port)


def _run_with_port(options: WorkerOptions, host: str, port: int) -> None:
    from holdfast.worker.port import WorkerPort

    figures = Figures()
    figures.know_tasks()
    worker = Worker(replace(options, figures=figures))
    answering = WorkerPort(worker, figures, host, port)
    emit("worker.listening", url=answering.url)
    try:
        worker.run(_loop_factory(options))
    finally:
        answering.close()


def _loop_factory(options: WorkerOptions) -> Callable[[], AbstractEventLoop] | None:
    """If uvloop is installed, return the factory of its event loops, which need less time for each round trip.

    Executors on Ray start a process in its own process group, which uvloop cannot do. Asynchronous tasks always run in
    a different loop.
    """
    if not LOCAL_EXECUTORS.issuperset(options.executors):
        return None
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _collect_garbage_less_often() -> None:
    """Look for reference cycles less often: a batch of runs is thousands of objects, none of them part of a cycle.

    Objects that exist by now are not examined again. If a task module has set a threshold, it is kept.
    """
    gc.freeze()
    first, *others = gc.get_threshold()
    if first in DEFAULT_THRESHOLDS:
        gc.set_threshold(COLLECT_AFTER, *others)


@contextmanager
def _opened(settings: Settings, request: WorkerRequest) -> Iterator[Runtime]:
    """Open the runtime of a worker, with all output of its process in the log."""
    about = about_current_run(lambda: None)
    with process_log(settings.log_format, settings.log_level, about) as output:
        _announce(settings, request)
        with Runtime(settings, lasting=True, purpose="worker") as runtime:
            adopt_logging(output)
            yield runtime


def _announce(settings: Settings, request: WorkerRequest) -> None:
    """Log what starts, before connecting to the database, which may take a while."""
    queues = "every queue" if request.queues is None else ", ".join(request.queues) or "none"
    emit(
        "worker.starting",
        database=masked(settings.database_url)
        if settings.database_url is not None
        else f"embedded in {Path(settings.home).resolve()}",
        executor=request.executor,
        slots=request.slots or (INLINE_SLOTS if request.executor == INLINE else processors()),
        queues=queues,
        tasks=", ".join(("holdfast.tasks", *settings.tasks)),
    )


def start_logging(settings: Settings) -> Callable[[], None]:
    """Write events to standard error, as configured. Call the returned function to stop."""
    return log_events(settings.log_format, settings.log_level)


def run_sweep(settings: Settings) -> None:
    """Perform the upkeep services and execute no runs, until stopped."""
    from holdfast.assembly.services import services

    request = WorkerRequest(queues=(), executor=INLINE, name=f"sweep {os.getpid()}")
    with _opened(settings, request) as runtime:
        Sweep(replace(worker_options(runtime, request), services=services(runtime))).run()


class Sweep(Worker):
    """A worker that claims nothing and only performs upkeep: it rescues, rings, publishes and prunes."""

    async def _begin(self) -> None:
        self._exchange.claiming = False


def worker_options(
    runtime: Runtime, request: WorkerRequest, executors: Mapping[str, Executor] | None = None
) -> WorkerOptions:
    """Return the options of a worker, with these executors or with those that the request asks for."""
    settings = runtime.settings
    options = WorkerOptions(
        database_url=runtime.database_url,
        executors=executors or open_executors(settings, request.executor, request.slots, request.cluster),
        default_executor=request.executor,
        listener=open_listener(runtime),
        queues=request.queues,
        task_modules=("holdfast.tasks", *settings.tasks),
        lease=settings.lease_seconds,
        renew_every=settings.renew_seconds,
        limits=Limits(
            settings.inline_result_bytes,
            settings.max_result_bytes,
            settings.grace_seconds,
            settings.task_timeout_seconds,
        ),
        store=partial(_store, runtime),
        prepare=partial(_prepare, settings),
        name=request.name,
        until_empty=request.until_empty,
        retention_days=settings.retention_days,
        pooler=settings.pooler,
    )
    pace = request.poll_seconds
    return options if pace is None else replace(options, poll_every=pace, poll_every_listening=pace)


def open_executors(
    settings: Settings, default: str, slots: int | None, cluster: str | None = None
) -> dict[str, Executor]:
    """Return the executors of a worker by name: its default one, and the inline one that every worker has.

    `slots` is for the default one; without it, each executor gets the number of slots that suits it.
    """
    return {INLINE: open_executor(settings, INLINE, None), default: open_executor(settings, default, slots, cluster)}


def open_executor(settings: Settings, name: str, slots: int | None, cluster: str | None = None) -> Executor:
    """Return a new executor of this name. Raise ConfigurationError if there is none.

    `cluster` is the name of a cluster in the settings, for executors on Ray.
    """
    make = EXECUTORS.get(name)
    if make is None:
        raise ConfigurationError(f"there is no executor {name!r}; choose one of {', '.join(EXECUTORS)}")
    return make(settings, slots, cluster)


def child_limits(settings: Settings) -> ChildLimits:
    return ChildLimits(
        runs=settings.child_max_runs,
        memory=settings.child_max_memory_bytes,
        descriptors=settings.child_max_descriptors,
        age=settings.child_max_seconds,
        begin=settings.child_begin_seconds,
    )


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _process(settings: Settings, slots: int | None, cluster: str | None) -> Executor:
    from holdfast.executors.process import ProcessExecutor

    return ProcessExecutor(slots or processors(), limits=child_limits(settings))


def _inline(settings: Settings, slots: int | None, cluster: str | None) -> Executor:
    from holdfast.executors.inline import InlineExecutor

    return InlineExecutor(slots or INLINE_SLOTS)


def _ray_job(settings: Settings, slots: int | None, cluster: str | None) -> Executor:
    from holdfast.assembly.ray import open_ray_job

    return open_ray_job(settings, slots, cluster)


def _ray_core(settings: Settings, slots: int | None, cluster: str | None) -> Executor:
    from holdfast.assembly.ray import open_ray_core

    return open_ray_core(settings, slots or processors(), cluster)


# Every executor that a worker can have. A factory imports its executor when it is called, because some of them need
# packages that are installed only where they are used; it raises ConfigurationError if such a package is missing.
EXECUTORS: Mapping[str, Callable[[Settings, int | None, str | None], Executor]] = {
    "process": _process,
    INLINE: _inline,
    "ray_job": _ray_job,
    "ray_core": _ray_core,
}


def open_listener(runtime: Runtime) -> Listener:
    """Return the worker's side of the configured doorbell."""
    settings = runtime.settings
    if settings.doorbell in ("redis", "rq"):
        from holdfast.doorbells.redis import RedisListener

        return RedisListener(settings.redis_url or "")  # it is set: see Settings
    if settings.doorbell == "poll":
        from holdfast.doorbells.poll import PollListener

        return PollListener()
    return listen_to(runtime.database_url, settings.pooler)


def listen_to(database_url: str, pooler: str = "auto") -> Listener:
    """Return a listener that receives notifications of this database."""
    from holdfast.doorbells.listen import NotifyListener
    from holdfast.drivers.psycopg_async import AsyncOwnConnection
    from holdfast.drivers.sessions import LISTENER

    async def connect() -> AsyncOwnConnection | None:
        connection = await AsyncOwnConnection.connect(database_url, session=LISTENER, pooler=pooler)
        if not connection.pooled:
            return connection
        await connection.close()
        return None

    return NotifyListener(connect)


def _store(runtime: Runtime, run_id: str, attempt: int, text: bytes) -> StoredResult:
    return runtime.store.put(run_id, attempt, text)


def _prepare(settings: Settings, task: str, parameters: Any, options: Mapping[str, Any]) -> NewRun:
    # Imported here because most workers create no runs, and a worker for one run is started for each run.
    from holdfast.verbs.submissions import prepare

    return prepare(settings, task, parameters, **options)
