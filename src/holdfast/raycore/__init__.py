"""An actor on Ray that executes runs for one worker.

The actor holds no lease and, unless a task opens a transaction of its own, no connection: its worker holds the leases
and settles what the actor reports. The actor performs runs as an inline executor does, in threads of its own process;
a run that does not stop is ended with the whole actor, which the worker replaces. Settings come from the environment of
the Ray node; large results go from here to the result store.

An actor belongs to the worker that last adopted it. It ends by itself when that worker has been silent for as long as
its lease lasts: by then its runs are lost and may begin elsewhere.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast.domain.canonical import canonicalize
from holdfast.domain.errors import ConfigurationError, HoldfastError
from holdfast.domain.execution import Ended, ExecutorContext, Limits
from holdfast.domain.reasons import LeaseRequest, ReasonCode
from holdfast.domain.settling import NotBegun, Succeeded
from holdfast.domain.tasks import load_modules
from holdfast.domain.values import AttemptRef, StoredResult
from holdfast.executors.channel import sent_options
from holdfast.executors.child_link import ERRORS, MESSAGE_LENGTH
from holdfast.executors.inline import InlineExecutor
from holdfast.executors.performing import clean
from holdfast.executors.ray_messages import frame, messages_of, received_claim, sent_outcome
from holdfast.executors.ray_pool import MOST_PER_BATCH
from holdfast.runtime.runtime import Runtime
from holdfast.runtime.settings import load

LOOK_EVERY = 0.5
# While more runs wait in the actor, results and notes are gathered for this long: each message costs the run that is
# being executed, because it shares the interpreter.
GATHER_SECONDS = 0.025
SILENT = 70  # the exit code of an actor whose worker is gone


class RunHost:
    """The actor. Each call of its worker carries messages in both directions; calls are answered in order."""

    def __init__(
        self, modules: Sequence[str], limits: Mapping[str, Any], transactions: str, contact_timeout: float
    ) -> None:
        load_modules(tuple(modules))
        settings = load()
        if settings.given_database_url() is None:
            raise ConfigurationError(
                "HOLDFAST_DATABASE_URL is not set on this Ray node; set it in the environment of ray start"
            )
        self._runtime = Runtime(settings, check=False)
        self._limits = Limits(**limits)
        self._transactions = transactions
        self._contact_timeout = contact_timeout
        self._owner = ""
        self._out: list[Any] = []
        self._ready = asyncio.Event()
        self._turn = asyncio.Lock()
        self._gathering: asyncio.TimerHandle | None = None
        self._executor: _Inline | None = None
        self._services = _Services(self._put)
        self._looks = 0
        threading.Thread(target=self._watch, name="holdfast-watch", daemon=True).start()

    async def adopt(self, owner: str) -> dict[str, str] | None:
        """Belong to this worker from now on. None if a run of another worker is still here."""
        if self._executor is not None and self._owner != owner and self._executor.busy:
            return None
        self._owner, self._looks = owner, 0
        if self._executor is None:
            self._executor = _Inline(self._put)
            await self._executor.open(self._place())
        return _where()

    async def exchange(self, owner: str, data: bytes, wait: float) -> bytes | None:
        """Take messages in, and give those out that have gathered, waiting for the first a while. None: not yours."""
        if owner != self._owner or self._executor is None:
            return None
        self._receive(self._executor, data)
        async with self._turn:
            if not self._ready.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ready.wait(), wait)
            self._ready.clear()
            if self._gathering is not None:
                self._gathering.cancel()
                self._gathering = None
            out, self._out = self._out, []
            self._looks = 0
            return frame(out)

    async def deliver(self, owner: str, data: bytes) -> None:
        """Take messages in at once, while an exchange waits."""
        if owner == self._owner and self._executor is not None:
            self._receive(self._executor, data)

    def _receive(self, executor: InlineExecutor, data: bytes) -> None:
        self._looks = 0
        for message in messages_of(data):
            self._obey(executor, message)

    def _obey(self, executor: InlineExecutor, message: list[Any]) -> None:
        match message:
            case ["give", worker_id, claims]:
                executor.give(worker_id, [received_claim(one) for one in claims])
            case ["stop", run_id, number, reason, sentence]:
                executor.stop(AttemptRef(run_id, number), LeaseRequest(ReasonCode(reason), sentence))
            case ["withdraw"]:
                self._report([Ended(claim, NotBegun()) for claim in executor.take_back()])
            case ["answer" | "refused" as kind, question, *said]:
                self._services.answered(kind, question, said)

    def _put(self, *message: Any) -> None:
        self._out.append(message)
        if message[0] in ("ask", "done", "ended"):
            self._ready.set()
        elif self._gathering is None:
            self._gathering = asyncio.get_running_loop().call_later(GATHER_SECONDS, self._ready.set)

    def _report(self, ended: Sequence[Ended]) -> None:
        done = []
        for claim, outcome in ended:
            if type(outcome) is Succeeded:
                result, stored, elapsed, adds = outcome
                if stored is None and not adds:
                    done.append((claim.run_id, claim.number, result, elapsed))
                    continue
            # An inline executor reports no take-over.
            self._put("ended", claim.run_id, claim.number, sent_outcome(outcome))  # type: ignore[arg-type]
        if done:
            self._put("done", done)

    def _place(self) -> ExecutorContext:
        return ExecutorContext(
            attempt_services=self._services,
            report=self._report,
            store=partial(_store, self._runtime),
            limits=self._limits,
            database_url=self._runtime.database_url,
            task_modules=(),
            transactions=self._transactions,
        )

    def _watch(self) -> None:
        """End this process when its worker has sent nothing for too long.

        Looks are counted rather than seconds: a task that holds the interpreter keeps messages from being read, and
        then no look happens either.
        """
        while self._looks < self._contact_timeout / LOOK_EVERY:
            threading.Event().wait(LOOK_EVERY)
            self._looks += 1
        os._exit(SILENT)


class _Inline(InlineExecutor):
    """Gathers the results of short runs.

    It reports extensions to the worker too, because the worker ends runs that ignore their time limit.
    """

    def __init__(self, put: Any) -> None:
        super().__init__()
        self._put = put
        self._later: asyncio.TimerHandle | None = None

    @property
    def busy(self) -> bool:
        return self._held > 0

    def _schedule_report(self) -> None:
        """Wake the loop for the first result, which waits for those after it, for the last, and for a whole batch.

        Called in a thread. While the results of a batch are on their way, the actor executes the next one.
        """
        sync, tasks = self._sync, self._async
        idle = not (sync is not None and sync.waiting) and not (tasks is not None and tasks.waiting)
        if idle or len(self._ended) == MOST_PER_BATCH:
            self._loop.call_soon_threadsafe(self._report)
        elif not self._scheduled:
            self._scheduled = True
            self._loop.call_soon_threadsafe(self._report_later)

    def _report_later(self) -> None:
        if self._later is None:
            self._later = self._loop.call_later(GATHER_SECONDS, self._report)

    def _report(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        super()._report()

    def _extend(self, ref: AttemptRef, seconds: float) -> None:
        super()._extend(ref, seconds)
        self._loop.call_soon_threadsafe(self._put, "extend", tuple(ref), seconds)


class _Services:
    """The attempt services of the worker, reached by messages."""

    def __init__(self, put: Any) -> None:
        self._put = put
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[Any]] = {}

    def note_progress(self, ref: AttemptRef, report: str) -> None:
        self._put("progress", tuple(ref), report)

    def note_log(self, ref: AttemptRef, level: str, message: str) -> None:
        self._put("log", tuple(ref), level, clean(message, MESSAGE_LENGTH))

    async def _ask(self, method: str, ref: AttemptRef, *arguments: Any) -> Any:
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self._put("ask", number, method, tuple(ref), arguments)
        return await answer

    def answered(self, kind: str, number: int, said: Sequence[Any]) -> None:
        answer = self._asked.pop(number, None)
        if answer is None or answer.done():
            return
        if kind == "answer":
            answer.set_result(said[0])
        else:
            answer.set_exception(ERRORS.get(said[0], HoldfastError)(said[1]))

    async def find_step(self, ref: AttemptRef, name: str) -> str | None:
        found: str | None = await self._ask("find_step", ref, clean(name, 300))
        return found

    async def record_step(self, ref: AttemptRef, name: str, result: str) -> None:
        await self._ask("record_step", ref, clean(name, 300), result)

    async def submit(self, ref: AttemptRef, task: str, parameters: Any, options: Mapping[str, Any]) -> str:
        text = canonicalize(parameters)[0]
        return str(await self._ask("submit", ref, task, text, sent_options(options)))

    async def stored_children(self, ref: AttemptRef) -> dict[str, str]:
        found: dict[str, str] = await self._ask("stored_children", ref)
        return found

    async def describe(self, ref: AttemptRef, details: Mapping[str, Any]) -> None:
        raise NotImplementedError("the worker describes where its attempts are executed")

    async def still_held(self, refs: Sequence[AttemptRef]) -> set[AttemptRef]:
        raise NotImplementedError("the worker knows which leases it holds")


def _store(runtime: Runtime, run_id: str, attempt: int, text: bytes) -> StoredResult:
    return runtime.store.put(run_id, attempt, text)


def _where() -> dict[str, str]:
    import ray

    context = ray.get_runtime_context()
    return {
        "ray_job_id": str(context.get_job_id()),
        "ray_actor_id": str(context.get_actor_id()),
        "ray_node_id": str(context.get_node_id()),
    }
