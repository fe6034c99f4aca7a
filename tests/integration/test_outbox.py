"""Events exist if and only if their run has ended, and are delivered in order and at least once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import redis

from holdfast import ops
from holdfast.domain.states import Status
from holdfast.outbox.publisher import Publisher
from holdfast.runtime.settings import Settings
from holdfast.testing import clock
from tests.integration.outbox_support import OutboxStage, publish, transacting
from tests.integration.redis_support import RedisServer

pytestmark = pytest.mark.redis

STREAM = "holdfast:events"


@pytest.fixture
def outbox(database_url: str) -> Iterator[OutboxStage]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        clock.install(connection)
        yield OutboxStage(connection)


def settings_for(database_url: str, redis_url: str) -> Settings:
    return Settings(database_url=database_url, redis_url=redis_url)


def streamed(redis_url: str) -> list[dict[str, Any]]:
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        return [json.loads(fields["event"]) for _, fields in client.xrange(STREAM)]


def runs_of(events: list[dict[str, Any]]) -> list[str]:
    return [event["data"]["run_id"] for event in events]


def test_rolled_back_end_of_a_run_leaves_no_event(outbox: OutboxStage) -> None:
    outbox.subscribe("all", "redis", STREAM)
    run_id = outbox.submit()
    with outbox.connection.transaction():
        outbox.end(run_id)
        assert outbox.all("select run_id::text, number, type from holdfast.outbox") == [(run_id, 1, "RunCompleted")]
        raise psycopg.Rollback
    assert outbox.all("select * from holdfast.outbox") == []


def test_without_a_subscription_no_event_is_written(outbox: OutboxStage) -> None:
    outbox.complete(1)
    outbox.do(ops.cancel(outbox.submit(), "no need"))
    assert outbox.all("select * from holdfast.outbox") == []


def test_a_run_cancelled_while_pending_has_its_event_too(outbox: OutboxStage) -> None:
    outbox.subscribe("all", "redis", STREAM)
    run_id = outbox.submit()
    outbox.do(ops.cancel(run_id, "no need"))
    assert outbox.all("select run_id::text, data ->> 'status' from holdfast.outbox") == [(run_id, "CANCELLED")]
    outbox.do(ops.retry(run_id, "me"))
    outbox.do(ops.cancel(run_id, "again no need"))
    assert outbox.all("select number from holdfast.outbox order by id") == [(0,), (-1,)]


async def test_events_arrive_in_the_order_in_which_runs_ended(
    outbox: OutboxStage, database_url: str, redis_url: str
) -> None:
    outbox.subscribe("all", "redis", STREAM)
    ended = outbox.complete(30)
    assert await publish(database_url, Publisher(settings_for(database_url, redis_url))) == 30
    events = streamed(redis_url)
    assert runs_of(events) == ended
    assert {event["type"] for event in events} == {"holdfast.run.completed"}
    assert {event["data"]["event"] for event in events} == {"RunCompleted"}
    assert outbox.all("select (select count(*) from holdfast.outbox), (select count(*) from holdfast.deliveries)") == [
        (0, 0)
    ]


async def test_each_subscription_receives_the_events_that_match_its_filter(
    outbox: OutboxStage, database_url: str, redis_url: str
) -> None:
    outbox.subscribe("failures", "redis", STREAM, status=["FAILED"], model=["fit", "mock"])
    outbox.subscribe("elsewhere", "redis", "elsewhere", queue=["other"])
    outbox.complete(3)
    failed = outbox.submit()
    outbox.end(failed, Status.FAILED)
    other = outbox.submit(queue="other", task="unwanted")
    outbox.end(other, Status.FAILED)
    assert await publish(database_url, Publisher(settings_for(database_url, redis_url))) == 2
    assert runs_of(streamed(redis_url)) == [failed]
    with redis.Redis.from_url(redis_url) as client:
        assert client.xlen("elsewhere") == 1


async def test_subscription_does_not_receive_runs_that_ended_before_it(
    outbox: OutboxStage, database_url: str, redis_url: str
) -> None:
    outbox.subscribe("early", "redis", "early")
    outbox.complete(1)
    outbox.subscribe("late", "redis", STREAM)
    later = outbox.complete(1)
    await publish(database_url, Publisher(settings_for(database_url, redis_url)))
    assert runs_of(streamed(redis_url)) == later


async def test_an_event_committed_late_under_a_lower_number_is_not_missed(
    outbox: OutboxStage, database_url: str, redis_url: str
) -> None:
    outbox.subscribe("all", "redis", STREAM)
    slow, quick = outbox.submit(), outbox.submit()
    with psycopg.connect(database_url) as other:
        late = OutboxStage.__new__(OutboxStage)
        late.connection, late.worker = other, outbox.worker
        late.end(slow)
        outbox.end(quick)
        await publish(database_url, Publisher(settings_for(database_url, redis_url)))
        assert runs_of(streamed(redis_url)) == [quick]
        other.commit()
    await publish(database_url, Publisher(settings_for(database_url, redis_url)))
    assert runs_of(streamed(redis_url)) == [quick, slow]


async def test_two_concurrent_fan_outs_create_each_delivery_once(
    outbox: OutboxStage, database_url: str, redis_url: str
) -> None:
    outbox.subscribe("all", "redis", STREAM)
    ended = outbox.complete(20)
    first, second = psycopg.connect(database_url), psycopg.connect(database_url)
    with first, second:
        for connection in (first, second):
            part = OutboxStage.__new__(OutboxStage)
            part.connection = connection
            amount = part.do(ops.outbox.fan_out(15))
            # The second one finds the lock taken and returns, rather than creating later numbers first.
            assert amount == (15 if connection is first else 0)
    await publish(database_url, Publisher(settings_for(database_url, redis_url)))
    assert runs_of(streamed(redis_url)) == ended


async def test_many_publishers_keep_the_order(outbox: OutboxStage, database_url: str, redis_url: str) -> None:
    outbox.subscribe("all", "redis", STREAM)
    outbox.subscribe("too", "redis", "other")
    ended = outbox.complete(60)
    settings = settings_for(database_url, redis_url)
    arrived = await asyncio.gather(*(publish(database_url, Publisher(settings)) for _ in range(4)))
    assert sum(arrived) == 120
    assert runs_of(streamed(redis_url)) == ended


async def test_publisher_that_dies_after_sending_causes_a_repetition_with_the_same_id(
    outbox: OutboxStage, database_url: str, redis_url: str
) -> None:
    outbox.subscribe("all", "redis", STREAM)
    ended = outbox.complete(2)

    async with transacting(database_url) as transact:

        async def dying(make_op: Any, /) -> Any:
            def op() -> Any:
                statement = None
                inner = iter(make_op())
                try:
                    while True:
                        statement = inner.send(None) if statement is None else inner.send((yield statement))
                        if "deliveries" in statement.sql and statement.sql.startswith("with done"):
                            raise ConnectionError("killed between sending and saying so")
                except StopIteration as done:
                    return done.value

            return await transact(op)

        publisher = Publisher(settings_for(database_url, redis_url))
        with pytest.raises(ConnectionError):
            await publisher.publish(dying)
    assert runs_of(streamed(redis_url)) == ended

    assert await publish(database_url, Publisher(settings_for(database_url, redis_url))) == 0, "still held"
    clock.move(outbox.connection, timedelta(minutes=5))
    assert await publish(database_url, Publisher(settings_for(database_url, redis_url))) == 2
    events = streamed(redis_url)
    assert runs_of(events) == ended + ended
    assert events[:2] == events[2:]


def test_a_publisher_that_lost_its_hold_writes_nothing(outbox: OutboxStage) -> None:
    outbox.subscribe("all", "redis", STREAM)
    outbox.complete(1)
    outbox.do(ops.outbox.fan_out())
    tried = ops.outbox.Try()
    slow, quick = "00000000-0000-7000-8000-000000000001", "00000000-0000-7000-8000-000000000002"
    held, deliveries = outbox.do(ops.outbox.hold(slow, 60.0, 10))
    assert outbox.do(ops.outbox.hold(quick, 60.0, 10)) is None
    clock.move(outbox.connection, timedelta(seconds=61))
    assert outbox.do(ops.outbox.hold(quick, 60.0, 10)) == (held, deliveries)
    ids = [deliveries[0].id]
    assert not outbox.do(ops.outbox.delivered(slow, ids, tried, keep=True, hold_seconds=60.0))
    assert not outbox.do(ops.outbox.put_off(slow, deliveries[0], tried, 60.0))
    assert not outbox.do(ops.outbox.give_up(slow, held, deliveries[0], tried, "too slow"))
    assert not outbox.do(ops.outbox.release(slow, held.id))
    assert outbox.all("select paused_at from holdfast.subscriptions") == [(None,)]
    assert outbox.do(ops.outbox.delivered(quick, ids, tried, keep=True, hold_seconds=60.0))


async def test_redis_outage_only_delays_deliveries(
    outbox: OutboxStage, database_url: str, own_redis: RedisServer
) -> None:
    outbox.subscribe("all", "redis", STREAM)
    ended = outbox.complete(3)
    own_redis.kill()
    settings = settings_for(database_url, own_redis.url)
    assert await publish(database_url, Publisher(settings)) == 0
    error, attempts = outbox.all("select error, attempts from holdfast.deliveries order by id limit 1")[0]
    assert attempts == 1
    assert "ConnectionError" in error
    own_redis.start()
    clock.move(outbox.connection, timedelta(minutes=5))
    assert await publish(database_url, Publisher(settings)) == 3
    assert runs_of(streamed(own_redis.url)) == ended


async def test_paused_subscription_collects_events_and_continues_where_it_stopped(
    outbox: OutboxStage, database_url: str, redis_url: str
) -> None:
    outbox.subscribe("all", "redis", STREAM)
    outbox.do(ops.outbox.pause_subscription("all", "maintenance"))
    ended = outbox.complete(2)
    settings = settings_for(database_url, redis_url)
    assert await publish(database_url, Publisher(settings)) == 0
    outbox.do(ops.outbox.resume_subscription("all"))
    assert await publish(database_url, Publisher(settings)) == 2
    assert runs_of(streamed(redis_url)) == ended


async def test_the_stream_is_trimmed(outbox: OutboxStage, database_url: str, redis_url: str) -> None:
    outbox.subscribe("all", "redis", STREAM)
    outbox.complete(300)
    settings = Settings(database_url=database_url, redis_url=redis_url, stream_length=100)
    assert await publish(database_url, Publisher(settings)) == 300
    assert len(streamed(redis_url)) < 300


def test_deliveries_are_deleted_after_their_retention(outbox: OutboxStage) -> None:
    outbox.subscribe("all", "redis", STREAM)
    outbox.complete(3)
    outbox.do(ops.outbox.fan_out())
    assert outbox.do(ops.outbox.forget_deliveries(7)) == 0
    clock.move(outbox.connection, timedelta(days=8))
    assert outbox.do(ops.outbox.forget_deliveries(7, limit=2)) == 2
    assert outbox.do(ops.outbox.forget_deliveries(7, limit=2)) == 1
