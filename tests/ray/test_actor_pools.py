"""The executor ray_core on a fake cluster: actors that die with batches, shapes, and calls that hang."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast.domain.execution import Ended
from holdfast.domain.settling import Failed, HandedBack, NotBegun, Succeeded
from holdfast.domain.values import Claim
from holdfast.executors import ray_driver
from holdfast.executors.ray_cluster import ActorGone, RayGone
from holdfast.executors.ray_core import RayCoreExecutor
from holdfast.executors.ray_driver import connected
from holdfast.executors.ray_host import MOST_EXCHANGES
from holdfast.executors.ray_messages import sent_outcome
from holdfast.executors.ray_pool import PLAIN, Shape
from tests.ray import run_tasks, tasks
from tests.ray.actors import FakeCluster, claim_of, context_of

assert run_tasks
assert tasks

OOM = ActorGone("OutOfMemoryError", "the memory monitor killed the actor")


class Play:
    """An executor with one slot on a fake cluster, and what it reported."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.reported: list[Ended] = []
        self.executor = RayCoreExecutor(1, "pool", self._connect)

    async def _connect(self) -> FakeCluster:
        return self.cluster

    async def open(self) -> None:
        await self.executor.open(context_of(self.reported))
        await until(lambda: self.executor.room() > 0)

    async def perform(self, *claims: Claim, elapsed: float = 0.0001) -> None:
        """Let these runs succeed, each in this time."""
        self.executor.give("worker", claims)
        for claim in claims:
            ended = ["ended", claim.run_id, claim.number, sent_outcome(Succeeded("1", None, elapsed))]
            self.cluster.answers_of_actors.put_nowait([ended])
        expected = len(self.reported) + len(claims)
        await until(lambda: len(self.reported) == expected)
        self.reported.clear()

    def begun(self) -> list[str]:
        return [claim[0] for message in self.cluster.given if message[0] == "give" for claim in message[2]]


async def until(holds: Callable[[], Any], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - conditions of a test
            await asyncio.sleep(0.01)


@pytest.fixture
async def play() -> Any:
    play = Play()
    await play.open()
    yield play
    await play.executor.close()
    assert play.cluster.closed


async def test_run_whose_actor_ran_out_of_memory_is_lost_with_that_error(play: Play) -> None:
    play.executor.give("worker", [claim_of("a")])
    play.cluster.answers_of_actors.put_nowait(OOM)
    await until(lambda: play.reported)
    (ended,) = play.reported
    assert isinstance(ended.outcome, Failed)
    assert (ended.outcome.lost, ended.outcome.reason, ended.outcome.error["class"]) == (
        True,
        "crash",
        "OutOfMemoryError",
    )


async def test_batch_of_a_dead_actor_is_handed_back_and_its_runs_are_then_assigned_alone(play: Play) -> None:
    await play.perform(claim_of("first"))
    play.executor.give("worker", [claim_of("a"), claim_of("b"), claim_of("c")])
    await until(lambda: len(play.begun()) == 4)
    play.cluster.answers_of_actors.put_nowait(OOM)
    await until(lambda: len(play.reported) == 3)
    assert all(isinstance(ended.outcome, HandedBack) for ended in play.reported)
    play.cluster.given.clear()
    await until(lambda: play.executor.room() > 0)
    play.executor.give("worker", [claim_of("a", 2), claim_of("b", 2), claim_of("c", 2)])
    await until(play.begun)
    assert play.begun() == ["a"]
    play.cluster.answers_of_actors.put_nowait(OOM)
    await until(lambda: play.begun() == ["a", "b"])
    assert isinstance(play.reported[-1].outcome, Failed)


async def test_an_actor_has_its_next_batch_while_it_executes_one_and_no_third(play: Play) -> None:
    await play.perform(claim_of("first"), elapsed=0.01)
    names = [f"run-{number}" for number in range(18)]
    play.executor.give("worker", [claim_of(name) for name in names[:6]])
    await until(lambda: len(play.begun()) == 7)
    play.executor.give("worker", [claim_of(name) for name in names[6:12]])
    assert play.begun() == ["first", *names[:12]]
    play.executor.give("worker", [claim_of(name) for name in names[12:]])
    assert play.begun() == ["first", *names[:12]]


async def test_batch_and_its_results_take_one_call(play: Play) -> None:
    await play.perform(claim_of("first"), elapsed=0.01)
    calls = play.cluster.calls
    names = [f"run-{number}" for number in range(12)]
    play.executor.give("worker", [claim_of(name) for name in names[:6]])
    await until(lambda: len(play.begun()) == 7)
    play.executor.give("worker", [claim_of(name) for name in names[6:]])
    for batch in (names[:6], names[6:]):
        play.cluster.answers_of_actors.put_nowait([["done", [[name, 1, "1", 0.001] for name in batch]]])
    await until(lambda: len(play.reported) == 12)
    assert play.cluster.calls == calls + 2


async def test_batch_is_assigned_at_once_after_two_have_ended_together(play: Play) -> None:
    await play.perform(claim_of("first"), elapsed=0.01)
    for name in ("a", "b"):
        play.executor.give("worker", [claim_of(name)])
        await until(lambda name=name: name in play.begun())
    play.cluster.answers_of_actors.put_nowait([["done", [["a", 1, "1", 0.01], ["b", 1, "1", 0.01]]]])
    await until(lambda: len(play.reported) == 2)
    play.executor.give("worker", [claim_of("c")])
    assert play.begun() == ["first", "a", "b", "c"]


async def test_batches_that_end_together_leave_few_exchanges(play: Play) -> None:
    await play.perform(claim_of("first"), elapsed=0.001)
    names = [f"run-{number}" for number in range(20)]
    for name in names:
        play.executor.give("worker", [claim_of(name)])
        await until(lambda name=name: name in play.begun())
    play.cluster.answers_of_actors.put_nowait([["done", [[name, 1, "1", 0.001] for name in names]]])
    await until(lambda: len(play.reported) == 20)
    (host,) = play.executor._hosts()
    assert len(host._exchanges) == MOST_EXCHANGES - 1


async def test_actor_that_is_gone_is_assigned_no_more_runs(play: Play) -> None:
    await play.perform(claim_of("first"), elapsed=0.01)
    for name in ("a", "b"):
        play.executor.give("worker", [claim_of(name)])
        await until(lambda name=name: name in play.begun())
    (host,) = play.executor._hosts()
    play.cluster.answers_of_actors.put_nowait(OOM)
    while not host._exchanges[0].done():  # noqa: ASYNC110 - conditions of a test
        await asyncio.sleep(0)
    for number in range(5):
        play.executor.give("worker", [claim_of(f"later-{number}")])
        await asyncio.sleep(0)
    await until(lambda: len(play.begun()) > 3)
    assert [ended.claim.run_id for ended in play.reported] == ["a", "b"]
    assert [exchange.done() for exchange in host._exchanges] == [True, True]


async def test_runs_behind_one_that_takes_long_are_withdrawn(play: Play) -> None:
    await play.perform(claim_of("first"))
    play.executor.give("worker", [claim_of("long"), claim_of("short")])
    await until(lambda: ["withdraw"] in play.cluster.given)
    play.cluster.answers_of_actors.put_nowait([["ended", "short", 1, sent_outcome(NotBegun())]])
    await until(lambda: play.reported)
    assert play.reported == [Ended(play.reported[0].claim, NotBegun())]


async def test_runs_of_a_later_batch_are_withdrawn_as_well(play: Play) -> None:
    await play.perform(claim_of("first"))
    for batch in ("one", "two"):
        play.cluster.given.clear()
        play.executor.give("worker", [claim_of(f"long {batch}"), claim_of(f"short {batch}")])
        await until(lambda: ["withdraw"] in play.cluster.given)
        ended = [["ended", f"{length} {batch}", 1, sent_outcome(NotBegun())] for length in ("short", "long")]
        play.cluster.answers_of_actors.put_nowait(ended)
        await until(lambda: not play.executor._pools[PLAIN].held)


async def test_a_task_with_resources_gets_an_actor_of_that_shape(play: Play) -> None:
    play.executor.give("worker", [claim_of("a", task="ray.on_second")])
    await until(play.begun)
    assert play.cluster.shapes == [PLAIN, Shape('{"cpu":1,"custom":{"second":1}}')]
    assert play.executor.room() == 0


async def test_runs_are_lost_with_the_connection_and_the_executor_connects_again(play: Play) -> None:
    play.executor.give("worker", [claim_of("a")])
    await until(play.begun)
    lost, play.cluster = play.cluster, FakeCluster()
    lost.answers_of_actors.put_nowait(RayGone("RayDriverGone", "the driver ended"))
    lost.gone.set()
    await until(lambda: play.reported)
    assert isinstance(play.reported[0].outcome, Failed)
    await until(lambda: play.executor.room() > 0)
    assert lost.closed


HANGING = "import sys; sys.stdin.read()"


@pytest.mark.parametrize("when", ["while it connects", "when it is connected"])
async def test_an_executor_ends_within_seconds_if_its_driver_hangs(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that reads and never responds, as if its calls to Ray hang."""
    real, started = asyncio.create_subprocess_exec, []

    async def start(*command: str, **options: Any) -> Any:
        process = await real(sys.executable, "-c", HANGING, **options)
        started.append(process)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    monkeypatch.setattr(ray_driver, "CLOSE_SECONDS", 0.2)
    if when == "when it is connected":
        monkeypatch.setattr(ray_driver.RayDriver, "_ask", _answer_first(ray_driver.RayDriver._ask))
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
        address = "{}:{}".format(*server.sockets[0].getsockname())
        executor = RayCoreExecutor(1, "pool", lambda: connected(address, 60.0, {}))
        await executor.open(context_of([]))
        await until(lambda: started)
        async with asyncio.timeout(20):
            await executor.close()
    assert started[0].returncode is not None


def _answer_first(ask: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def answer(self: Any, *request: Any, **options: Any) -> Any:
        return None if request == ("connect",) else await ask(self, *request, **options)

    return answer


async def test_worker_is_away_until_its_first_actor_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    play, noted, may_start = Play(), list[str | None](), asyncio.Event()
    start = FakeCluster.start

    async def start_late(self: FakeCluster, *given: Any) -> Any:
        await may_start.wait()
        return await start(self, *given)

    monkeypatch.setattr(FakeCluster, "start", start_late)
    await play.executor.open(context_of(play.reported)._replace(note_away=noted.append))
    await until(lambda: noted)
    assert noted == ["the worker is connected, and its actors are starting"]
    may_start.set()
    await until(lambda: play.executor.room() > 0)
    await play.executor.close()
    assert noted[1:] == [None]


async def test_actors_that_do_not_start_are_tried_again_at_growing_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []
    pauses: list[float] = []
    real = asyncio.sleep

    async def refuse(self: FakeCluster, name: str, *rest: Any) -> None:
        tries.append(name)
        raise ActorGone("ActorDiedError", "this Ray node has no HOLDFAST_DATABASE_URL")

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await real(0)

    monkeypatch.setattr(FakeCluster, "start", refuse)
    play, noted = Play(), list[str | None]()
    monkeypatch.setattr("holdfast.executors.ray_pool.asyncio.sleep", sleep)
    await play.executor.open(context_of(play.reported)._replace(note_away=noted.append))
    async with asyncio.timeout(20):
        while len(tries) < 6:
            await real(0.01)
    await play.executor.close()
    waited = [pause for pause in pauses if pause > 0.25 * 1.01 or pause < 0.25 * 0.99]
    assert len(waited) >= 5
    assert max(waited) > 4 * min(waited)
    assert any("HOLDFAST_DATABASE_URL" in (why or "") for why in noted)
