"""The worker's end of its driver: the process that is connected to a Ray cluster (`holdfast.raycore.driver`).

Ray ends or aborts a process that is connected to a cluster whose head dies or is replaced, and its calls may hang
indefinitely. So the worker does not connect itself. It starts a driver, which can be killed at any moment, and
starts another one when that is gone.

Requests go to the driver's standard input and responses come from its standard output: a header in JSON, and a payload
that is passed on unchanged. A second pipe tells the driver to kill all actors, which works from every thread, and ends
the driver when its worker is gone.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import struct
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import orjson

from holdfast.domain.execution import ExecutorContext
from holdfast.executors.ray_cluster import ActorGone, Cluster, RayGone
from holdfast.executors.ray_pool import Shape
from holdfast.executors.ray_resources import of_actor

KILL_ALL = b"K"
LISTEN_SECONDS = 5.0
CONNECT_SECONDS = 180.0
CLOSE_SECONDS = 3.0
_LENGTHS = struct.Struct("!II")

Environments = Mapping[str, Mapping[str, Any]]


def packed(header: Sequence[Any], payload: bytes = b"") -> bytes:
    text = orjson.dumps(header)
    return _LENGTHS.pack(len(text), len(payload)) + text + payload


async def received(reader: asyncio.StreamReader) -> tuple[list[Any], bytes]:
    """Return the next message. Raise IncompleteReadError at the end of the stream."""
    header, payload = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
    return orjson.loads(await reader.readexactly(header)), await reader.readexactly(payload)


class RayDriver(Cluster):
    """A driver that is connected to the cluster at this address. Its actors outlive it by `contact_timeout` seconds."""

    def __init__(self, address: str, contact_timeout: float, environments: Environments) -> None:
        self.address = address
        self._contact_timeout = contact_timeout
        self._environments = environments
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._control = -1
        self.gone = asyncio.Event()

    async def connect(self) -> None:
        """Start the driver and wait until it is connected. Raise RayGone if it cannot connect."""
        await self._find_listener()
        reading, self._control = os.pipe()
        os.set_blocking(self._control, False)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "holdfast.raycore.driver", self.address, str(reading)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                pass_fds=(reading,),
                process_group=0,
            )
        finally:
            os.close(reading)
        self._reading = asyncio.create_task(self._read())
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._ask("connect")
        except TimeoutError:
            raise RayGone("TimeoutError", f"could not connect to {self.address} within {CONNECT_SECONDS:g} s") from None

    async def _find_listener(self) -> None:
        """Fail fast if nothing listens at the address: Ray would retry for a minute."""
        host, _, port = self.address.rpartition(":")
        try:
            async with asyncio.timeout(LISTEN_SECONDS):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except (OSError, TimeoutError) as error:
            raise RayGone(
                "ConnectionError", f"no Ray cluster listens at {self.address}: {str(error) or 'timeout'}"
            ) from error
        writer.close()

    async def start(self, name: str, shape: Shape, context: ExecutorContext, owner: str) -> dict[str, str] | None:
        options = of_actor(shape.needs)
        if shape.environment is not None:
            if shape.environment not in self._environments:
                known = ", ".join(self._environments) or "nothing"
                raise ActorGone("NoEnvironment", f"HOLDFAST_RAY_ENVIRONMENTS has {known}, not {shape.environment}")
            options["runtime_env"] = dict(self._environments[shape.environment])
        arguments = [context.task_modules, asdict(context.limits), context.transactions, self._contact_timeout]
        found: dict[str, str] | None = await self._ask("start", name, options, arguments, owner)
        return found

    def exchange(self, name: str, owner: str, data: bytes, wait: float) -> asyncio.Future[bytes | None]:
        return self._ask("exchange", name, owner, wait, payload=data)

    def deliver(self, name: str, owner: str, data: bytes) -> None:
        self._send([None, "deliver", name, owner], data)

    def kill(self, name: str) -> None:
        self._send([None, "kill", name])

    def kill_all(self) -> None:
        with suppress(OSError):  # the driver is gone
            os.write(self._control, KILL_ALL)

    async def answers(self) -> bool:
        return bool(await self._ask("nodes"))

    async def close(self) -> None:
        """Kill the actors and end the driver, by force if Ray hangs."""
        if self._process is not None:
            with suppress(ActorGone, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._ask("close")
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        control, self._control = self._control, -1
        if control >= 0:
            os.close(control)

    def _ask(self, *request: Any, payload: bytes = b"") -> asyncio.Future[Any]:
        """Send a request now, and return its answer in the future."""
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda _: self._asked.pop(number, None))
        if self.gone.is_set():
            answer.set_exception(RayGone("RayDriverGone", "the driver has ended"))
        else:
            self._send([number, *request], payload)
        return answer

    def _send(self, header: Sequence[Any], payload: bytes = b"") -> None:
        if self._process is not None and self._process.stdin is not None and not self.gone.is_set():
            self._process.stdin.write(packed(header, payload))

    async def _read(self) -> None:
        process = self._process
        assert process is not None  # noqa: S101
        assert process.stdout is not None  # noqa: S101
        try:
            while True:
                header, payload = await received(process.stdout)
                self._answered(header, payload)
        except (asyncio.IncompleteReadError, ConnectionError):
            code = await process.wait()
            self.gone.set()
            for answer in list(self._asked.values()):
                if not answer.done():
                    answer.set_exception(RayGone("RayDriverGone", f"the driver ended with exit code {code}"))

    def _answered(self, header: list[Any], payload: bytes) -> None:
        answer = self._asked.get(header[0])
        if answer is None or answer.done():
            return
        match header[1:]:
            case ["bytes"]:
                answer.set_result(payload)
            case ["value", value]:
                answer.set_result(value)
            case ["error", kind, message]:
                answer.set_exception(ActorGone(kind, message))


async def connected(address: str, contact_timeout: float, environments: Environments) -> RayDriver:
    """Return a connected driver. If connecting fails or is cancelled, no process is left behind."""
    driver = RayDriver(address, contact_timeout, environments)
    try:
        await driver.connect()
    except BaseException:
        await driver.close()
        raise
    return driver
