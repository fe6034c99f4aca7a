"""The driver of a worker: `python -m holdfast.raycore.driver ADDRESS CONTROL`.

It is connected to a Ray cluster, makes named actors for its worker, and passes messages on (see
`holdfast.executors.ray_driver`). It keeps nothing that the worker could not do without, so it may die at any moment.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from holdfast.executors.ray_addresses import LOOPBACK, require_version
from holdfast.executors.ray_driver import KILL_ALL, packed, received

NAMESPACE = "holdfast"
MESSAGE_LENGTH = 1000


class Driver:
    """Serves requests, each in a task of its own. What blocks in Ray blocks a thread."""

    def __init__(self, address: str, write: Callable[[bytes], object]) -> None:
        self._address = address
        self._write = write
        self._ray: Any = None
        self._actors: dict[str, Any] = {}
        self._kills: list[threading.Thread] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                header, payload = await received(reader)
                if header[0] is None:
                    self._obey(header[1:], payload)
                else:
                    task = asyncio.create_task(self._answer(header, payload))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)

    def _obey(self, request: list[Any], payload: bytes) -> None:
        match request:
            case ["deliver", name, owner]:
                # After the exchanges that were sent before it, whose tasks have not begun yet.
                asyncio.get_running_loop().call_soon(self._deliver, name, owner, payload)
            case ["kill", name]:
                actor = self._actors.pop(name, None)
                if actor is not None:
                    self._kills = [thread for thread in self._kills if thread.is_alive()]
                    self._kills.append(threading.Thread(target=self._kill, args=[actor], daemon=True))
                    self._kills[-1].start()

    def _deliver(self, name: str, owner: str, payload: bytes) -> None:
        if name in self._actors:
            self._actors[name].deliver.remote(owner, payload)

    async def _answer(self, header: list[Any], payload: bytes) -> None:
        number, *request = header
        try:
            answer = await self._do(request, payload)
        except BaseException as error:  # noqa: BLE001 - the worker gets it
            self._write(packed([number, "error", type(error).__name__, _said(error)]))
            return
        if isinstance(answer, bytes):
            self._write(packed([number, "bytes"], answer))
        else:
            self._write(packed([number, "value", answer]))

    async def _do(self, request: list[Any], payload: bytes) -> Any:
        match request:
            case ["exchange", name, owner, wait]:
                return await self._actors[name].exchange.remote(owner, payload, wait)
            case ["start", name, options, arguments, owner]:
                actor = self._actors[name] = await asyncio.to_thread(self._make, name, options, arguments)
                return await actor.adopt.remote(owner)
            case ["connect"]:
                return await asyncio.to_thread(self._connect)
            case ["nodes"]:
                return await asyncio.to_thread(lambda: len(self._ray.nodes()))
            case ["close"]:
                return await asyncio.to_thread(self._end)
        raise ValueError(f"no such request: {request[:1]}")

    def _connect(self) -> None:
        if self._address.startswith(LOOPBACK):
            # Otherwise Ray replaces the address by that of this machine, where a head on loopback does not listen.
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        import ray

        require_version(ray.__version__)
        ray.init(address=self._address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
        self._ray = ray

    def _make(self, name: str, options: dict[str, Any], arguments: list[Any]) -> Any:
        from holdfast.raycore import RunHost

        fixed = {
            "name": name,
            "namespace": NAMESPACE,
            "lifetime": "detached",
            "get_if_exists": True,
            "max_restarts": 0,
            "max_task_retries": 0,
        }
        return self._ray.remote(RunHost).options(**options, **fixed).remote(*arguments)

    def _kill(self, actor: Any) -> None:
        with suppress(Exception):  # it is gone already, or the cluster is
            self._ray.kill(actor, no_restart=True)

    def _end(self) -> None:
        for thread in self._kills:
            thread.join()
        self.kill_all()

    def kill_all(self) -> None:
        for actor in list(self._actors.values()):
            self._kill(actor)


def _said(error: BaseException) -> str:
    return str(error)[:MESSAGE_LENGTH].encode("utf-8", "backslashreplace").decode()


def _follow(control: int, driver: Driver) -> None:
    """Kill the actors when the worker demands it, and end this process when the worker is gone."""
    while command := os.read(control, 1):
        if command == KILL_ALL:
            driver.kill_all()
    os._exit(0)


async def _main(address: str, control: int, output: int) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, _ = await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(output, "wb", 0))
    driver = Driver(address, transport.write)
    threading.Thread(target=_follow, args=[control, driver], daemon=True).start()
    await driver.serve(reader)


if __name__ == "__main__":
    # What Ray and libraries print must not get between the responses.
    responses = os.dup(1)
    os.dup2(2, 1)
    try:
        asyncio.run(_main(sys.argv[1], int(sys.argv[2]), responses))
    finally:
        os._exit(0)
