"""The sink that adds to a Redis stream: a batch in one round trip, trimming the stream to about its length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.doorbells.redis import open_redis
from holdfast.outbox.envelope import cloud_event
from holdfast.outbox.responses import Answer, stream_delay_of
from holdfast.runtime.settings import Settings, masked
from holdfast.sql.deliveries import Delivery, Held

IO_SECONDS = 5.0


class StreamSink:
    """Adds many events at once. Delivered events are deleted from the database."""

    batch = 500
    keep = False

    def __init__(self, settings: Settings) -> None:
        self._source = settings.event_source
        self._length = settings.stream_length
        self._url = settings.redis_url
        self._redis: Any = None

    def send(self, held: Held, deliveries: Sequence[Delivery]) -> Answer:
        """Add all of these, or none: an entry has `id`, `type`, `subject` and the whole event as `event`."""
        if not self._url:
            return Answer(False, error="no Redis is configured; set HOLDFAST_REDIS_URL")
        import orjson
        import redis

        try:
            with self._client().pipeline(transaction=True) as pipeline:
                for delivery in deliveries:
                    event = cloud_event(delivery, self._source)
                    fields = {name: event[name] for name in ("id", "type", "subject")}
                    fields["event"] = orjson.dumps(event)
                    pipeline.xadd(held.target, fields, maxlen=self._length, approximate=True)
                pipeline.execute()
        # redis-py raises ValueError if a response times out while its connection is being closed.
        except (redis.RedisError, OSError, ValueError) as error:
            return Answer(False, error=f"{type(error).__name__}: {masked(self._url)}: {error}"[:500])
        return Answer(True)

    def delay(self, attempts: int, answer: Answer, random: float) -> float | None:
        return stream_delay_of(attempts, random)

    def close(self) -> None:
        if self._redis is not None:
            self._redis.close()
            self._redis = None

    def _client(self) -> Any:
        if self._redis is None:
            self._redis = open_redis(self._url or "", IO_SECONDS)
        return self._redis
