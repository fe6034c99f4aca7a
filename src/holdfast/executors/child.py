"""A child process: performs the runs that its worker sends, one after the other.

The main thread runs user code. A second thread receives from the worker: runs, requests to stop, and responses. The
child dies with its worker: its guardian kills it, and if that is gone, the child exits when its channel is closed. What
user code prints and logs becomes lines of the worker's log.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from holdfast.domain.context import Assignment, RunContext, enter, leave
from holdfast.domain.errors import HoldfastError
from holdfast.domain.execution import ChildLimits, Limits, Settled
from holdfast.domain.reasons import LeaseRequest, ReasonCode
from holdfast.domain.settling import Failed, HandedBack, Outcome, Succeeded, stopped_by
from holdfast.domain.tasks import Task, load_modules, registry
from holdfast.executors.channel import Channel, sent_run
from holdfast.executors.child_link import ChildLink
from holdfast.executors.child_usage import ChildUsage
from holdfast.executors.output import ChildOutput
from holdfast.executors.performing import Interrupted, concluded, failed
from holdfast.executors.shared_state import SharedState
from holdfast.observe.capture import end_lines
from holdfast.observe.lines import LogFormat

FLUSH_EVERY = 0.002
LEAVE_WITHIN = 2.0


class Child:
    def __init__(self, channel: Channel, state: SharedState, link: ChildLink, limits: Limits, own: ChildLimits) -> None:
        self._channel = channel
        self._state = state
        self._limits = limits
        self._link = link
        self._pending: queue.SimpleQueue[tuple[int, str, Assignment] | None] = queue.SimpleQueue()
        self._current: RunContext | None = None
        self._cancel_async: Any = None
        self._requests: dict[tuple[str, int], LeaseRequest] = {}
        self._runner: Any = None
        self._interrupted = False
        self._retiring = False
        # As the user's modules set them: a run that replaces them affects only itself.
        self._streams = sys.stdout, sys.stderr
        threading.Thread(target=self._receive, name="holdfast-link", daemon=True).start()
        # Count this thread, so that it is not mistaken for one that a run left behind.
        self._usage = ChildUsage(own)

    def serve(self) -> None:
        """Perform runs until the worker is gone or dismisses this process."""
        signal.signal(signal.SIGTERM, self._on_terminate)
        while not self._interrupted:
            given = self._pending.get()
            if given is None:
                return
            index, worker_id, assignment = given
            started = monotonic()
            if self._retiring or not self._state.begin(index, started, assignment.run_id, assignment.number):
                self._link.put(["unbegun", [index]])
                self._link.flush()
                continue
            self._link.worker_id = worker_id
            outcome = self._perform(assignment, started)
            self._link.put_result(_as_message(index, outcome))
            self._after(outcome)

    def current(self) -> RunContext | None:
        """Return the run that is being executed."""
        return self._current

    def _after(self, outcome: Outcome | Settled) -> None:
        now = monotonic()
        why = self._usage.check(now)
        if why is not None and not self._retiring:
            self._retiring = True
            self._link.put(["retire", why])
        if self._interrupted or self._pending.empty() or now - self._link.flushed_at > FLUSH_EVERY:
            self._link.flush()
        if isinstance(outcome, Failed) and outcome.reason is ReasonCode.CRASH:
            self._link.flush()
            _leave(outcome.exit_code or 0)

    def _perform(self, assignment: Assignment, started: float) -> Outcome | Settled:
        context = RunContext(self._link, assignment)
        task = registry.find(assignment.task)
        token = enter(context)
        self._current = context
        try:
            if self._requests and (request := self._requests.get((assignment.run_id, assignment.number))) is not None:
                return stopped_by(request, 0.0)
            found = task or registry.get(assignment.task)
            value = found.call(context.parameters)
            if found.is_async:
                value = self._await(value)
            context.check_children()
            return concluded(context, value, started, self._limits)
        except BaseException as error:  # noqa: BLE001 - whatever a task raises is an outcome
            return self._failed(context, task, error, started)
        finally:
            end_lines()
            sys.stdout, sys.stderr = self._streams
            self._current = None
            leave(token)

    def _failed(self, context: RunContext, task: Task | None, error: BaseException, started: float) -> Outcome:
        self._current = None
        self._usage.failed(error)
        if isinstance(error, Interrupted):
            # Interrupted code may have left locks held and data half changed, so this process exits after the run.
            self._interrupted = True
        elif type(error).__name__ == "CancelledError" and context.stop_reason is not None:
            error = context.stop_reason
        return failed(context, task, error, started)

    def _await(self, coroutine: Any) -> Any:
        import asyncio
        import contextvars

        if self._runner is None:
            self._runner = asyncio.Runner()
        loop = self._runner.get_loop()

        async def main() -> Any:
            task = asyncio.current_task()
            assert task is not None  # noqa: S101
            self._cancel_async = lambda: loop.call_soon_threadsafe(task.cancel)
            return await coroutine

        try:
            return self._runner.run(main(), context=contextvars.copy_context())
        finally:
            self._cancel_async = None

    def _on_terminate(self, number: int, at: FrameType | None) -> None:
        """Interrupt a run that was asked to stop and did not. Without such a run, the signal ends this process."""
        context = self._current
        if context is not None and context.stop_reason is not None:
            raise Interrupted
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    def _receive(self) -> None:
        try:
            while (messages := self._channel.receive()) is not None:
                for message in messages:
                    self._handle(message)
        finally:
            self._stop_receiving()

    def _stop_receiving(self) -> None:
        """Handle a worker that is gone, has dismissed this process, or sent an invalid message.

        If idle, the process exits normally. If busy, it is killed together with the processes it started.
        """
        self._pending.put(None)
        if self._current is None:
            threading.Event().wait(LEAVE_WITHIN)
        os.killpg(0, signal.SIGKILL)

    def _handle(self, message: list[Any]) -> None:
        match message:
            case ["runs", worker_id, first, runs]:
                for offset, run in enumerate(runs):
                    self._pending.put((first + offset, worker_id, Assignment._make(run)))
            case ["stop", run_id, number, reason, text]:
                self._stop((run_id, number), LeaseRequest(ReasonCode(reason), text))
            case ["withdraw"]:
                self._withdraw()
            case ["answer" | "refused" as kind, number, *content]:
                self._link.respond(kind, number, content)

    def _stop(self, ref: tuple[str, int], request: LeaseRequest) -> None:
        # In this order, so that a run that is just beginning is not missed.
        self._requests[ref] = request
        context = self._current
        if context is not None and context.ref == ref:
            context.ask_to_stop(request)
            if (interrupt := self._cancel_async) is not None:
                interrupt()

    def _withdraw(self) -> None:
        taken = []
        with suppress(queue.Empty):
            while (given := self._pending.get_nowait()) is not None:
                taken.append(given[0])
        self._link.put(["withdrawn", taken])
        self._link.flush()


def _as_message(index: int, outcome: Outcome | Settled) -> list[Any]:
    match outcome:
        case Succeeded():
            return ["ok", index, outcome.result, outcome.elapsed, *map(sent_run, outcome.adds)]
        case Failed():
            return [
                "failed",
                index,
                outcome.error,
                outcome.retryable,
                outcome.reason,
                outcome.exit_code,
                outcome.elapsed,
            ]
        case Settled():
            return ["settled", index, outcome.elapsed]
        case HandedBack():
            return ["handed back", index, outcome.elapsed, outcome.reason, outcome.delay]
        case _:
            return ["stopped", index, outcome.elapsed]


def _leave(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


class Early(NamedTuple):
    """What a child that is forked by its worker knows before its settings: it loads the tasks without waiting."""

    modules: Sequence[str]
    log_format: LogFormat


def main(channel: Channel, state: SharedState, log: int, early: Early | None = None) -> None:
    """Execute runs until the worker is gone; `log` is the descriptor of the log."""
    output: ChildOutput | None = None
    try:
        if early is not None:
            output = ChildOutput(early.log_format, log)
            load_modules(early.modules)
        messages = channel.receive()
        if messages is None:
            return
        settings = messages[0][1]
        sys.path[:] = settings["path"]
        form = settings["log_format"]
        if early is None and form is not None:
            output = ChildOutput(LogFormat(*form), log)
        load_modules(settings["modules"])
    except HoldfastError as error:
        channel.send([["broken", str(error)]])
        return
    link = ChildLink(channel, state, settings["transactions"], settings["url"])
    child = Child(channel, state, link, Limits(**settings["limits"]), ChildLimits(**settings["child_limits"]))
    if output is not None:
        output.modules_loaded()
        output.current = child.current
    channel.send([["ready"]])
    child.serve()
