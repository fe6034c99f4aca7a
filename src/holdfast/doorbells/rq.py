"""Doorbell over RQ: a message in Redis for each ready run, which any `rq worker` may process.

A message is a call of one fixed function with the id of a run, as JSON. Postgres decides whether the run can be claimed
when the message is processed: for a duplicate, outdated or forged message there is nothing to claim. The RQ job id
consists of the run's id and its next attempt number, so ringing twice overwrites the message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from time import monotonic
from typing import Any

from holdfast.domain.doorbell import Ring
from holdfast.domain.errors import ConfigurationError
from holdfast.doorbells.redis import Backoff, open_redis, warn

# The only function that messages call.
FUNCTION = "holdfast.rq.execute_run"
SERIALIZER = "rq.serializers.JSONSerializer"

AT_ONCE = 500
# More messages than this do not make RQ workers faster; the others are sent as these are processed.
ENOUGH_WAITING = 1000
# If no RQ worker processes messages, because other workers execute the runs, about this many remain at most.
MOST_WAITING = 10_000
FULL_FOR = 1.0
FAILURES_KEPT_SECONDS = 3600


class RunRinger:
    """Puts messages into RQ queues. Never raises if Redis is unavailable: missing messages are sent later."""

    def __init__(self, url: str, again_after: float) -> None:
        if find_spec("rq") is None:
            raise ConfigurationError("HOLDFAST_DOORBELL=rq needs the extra `rq`: pip install 'holdfast[rq]'")
        self._redis = open_redis(url)
        self._backoff = Backoff(warn)
        self._again_ms = max(1, int(again_after * 1000))
        self._queue = lru_cache(1000)(self._open_queue)
        self._full_until: dict[str, float] = {}

    def ring(self, rings: Sequence[Ring]) -> int:
        """Send messages for runs that have just become ready. Return how many were sent."""
        wanted = [ring for ring in rings[:ENOUGH_WAITING] if self._full_until.get(ring.queue, 0.0) <= monotonic()]
        return self._try_redis(lambda: self._enqueue(wanted)) if wanted else 0

    def ring_again(self, rings: Sequence[Ring]) -> int:
        """Send messages for runs that have none, in queues that have too few messages. Return how many were sent."""
        return self._try_redis(lambda: self._enqueue(self._without_message(rings))) if rings else 0

    def may_sweep(self, seconds: float) -> bool:
        """Return whether this process should sweep now: one process does, every `seconds`."""
        mine = self._try_redis(lambda: self._redis.set("holdfast:sweep", 1, nx=True, px=max(1, int(seconds * 1000))))
        return bool(mine)

    def close(self) -> None:
        self._redis.close()

    def _open_queue(self, name: str) -> Any:
        # Importing RQ is slow, so processes that never ring do not import it.
        from rq import Queue

        return Queue(name, connection=self._redis, serializer=SERIALIZER)

    def _try_redis(self, call: Any) -> int:
        if self._backoff.active:
            return 0
        import redis

        try:
            answer = call()
        except (redis.RedisError, OSError) as error:
            self._backoff.failed(error)
            return 0
        self._backoff.succeeded()
        return int(answer or 0)

    def _without_message(self, rings: Sequence[Ring]) -> list[Ring]:
        queues = list({ring.queue for ring in rings})
        with self._redis.pipeline(transaction=False) as pipeline:
            for queue in queues:
                pipeline.llen(self._queue(queue).key)
            for ring in rings:
                pipeline.exists(_marker_key(ring))
            answers = pipeline.execute()
        room = {queue: ENOUGH_WAITING - length for queue, length in zip(queues, answers, strict=False)}
        chosen = []
        for ring, rung in zip(rings, answers[len(queues) :], strict=True):
            if not rung and room[ring.queue] > 0:
                room[ring.queue] -= 1
                chosen.append(ring)
        return chosen

    def _enqueue(self, rings: Sequence[Ring]) -> int:
        for start in range(0, len(rings), AT_ONCE):
            by_queue = _by_queue(rings[start : start + AT_ONCE])
            with self._redis.pipeline(transaction=False) as pipeline:
                for queue, of_queue in by_queue.items():
                    self._queue(queue).enqueue_many([self._message(ring) for ring in of_queue], pipeline=pipeline)
                    for ring in of_queue:
                        pipeline.set(_marker_key(ring), 1, px=self._again_ms)
                for queue in by_queue:
                    pipeline.llen(self._queue(queue).key)
                lengths = pipeline.execute()[-len(by_queue) :]
            self._note_full(zip(by_queue, lengths, strict=True))
        return len(rings)

    def _note_full(self, lengths: Iterable[tuple[str, int]]) -> None:
        for queue, length in lengths:
            if length >= MOST_WAITING:
                self._full_until[queue] = monotonic() + FULL_FOR
            else:
                self._full_until.pop(queue, None)

    def _message(self, ring: Ring) -> Any:
        from rq import Queue

        return Queue.prepare_data(
            FUNCTION,
            args=[ring.run_id],
            job_id=ring.job_id,
            description=f"run {ring.run_id}",
            timeout=-1,
            result_ttl=0,
            failure_ttl=FAILURES_KEPT_SECONDS,
        )


def _marker_key(ring: Ring) -> str:
    return f"holdfast:rung:{ring.job_id}"


def _by_queue(rings: Iterable[Ring]) -> dict[str, list[Ring]]:
    found: dict[str, list[Ring]] = {}
    for ring in rings:
        found.setdefault(ring.queue, []).append(ring)
    return found
