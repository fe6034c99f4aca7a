"""Webhooks: signed, bounded, in order, retried, and never a way into Holdfast's network."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from holdfast import ops
from holdfast.domain.errors import BadInput, SubscriptionNotFound
from holdfast.outbox import addresses, envelope
from holdfast.outbox.publisher import Publisher
from holdfast.outbox.responses import SCHEDULE, Answer, delay_of, retry_after_of
from holdfast.runtime.settings import Settings
from holdfast.testing import clock
from tests.integration.outbox_support import OutboxStage, Receiver, Request, publish, receiving

SECRET = envelope.new_secret()


@pytest.fixture
def outbox(database_url: str) -> Iterator[OutboxStage]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        clock.install(connection)
        yield OutboxStage(connection)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as one:
        yield one


@pytest.fixture
def settings(database_url: str) -> Settings:
    return Settings(database_url=database_url, webhook_allow_private=True, webhook_seconds=5.0)


async def sent(settings: Settings) -> int:
    assert settings.database_url is not None
    return await publish(settings.database_url, Publisher(settings))


def log(outbox: OutboxStage) -> list[tuple[Any, ...]]:
    return [
        (d.status, d.attempts, d.response_code)
        for d in reversed(outbox.do(ops.outbox.list_deliveries(None, None, None, 50)))
    ]


def verified(request: Request, secret: str = SECRET) -> Any:
    return Webhook(secret).verify(request.body, request.headers)


async def test_receiver_can_parse_and_verify_a_webhook(
    outbox: OutboxStage, receiver: Receiver, settings: Settings
) -> None:
    outbox.subscribe("hook", "webhook", receiver.url, SECRET)
    (run_id,) = outbox.complete(1, tags=("a",), traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    assert await sent(settings) == 1
    (request,) = receiver.requests
    assert request.path == "/hook"
    verified(request)
    with pytest.raises(WebhookVerificationError):
        verified(request, envelope.new_secret())
    event = from_http_event(HTTPMessage(request.headers, request.body))
    assert event.get_specversion() == "1.0"
    assert event.get_type() == "holdfast.run.completed"
    assert event.get_source() == "/holdfast"
    assert event.get_subject() == f"runs/{run_id}"
    assert event.get_id() == request.headers["webhook-id"]
    assert event.get_extension("traceparent").startswith("00-0af7")
    data: Any = event.get_data()
    assert (data["event"], data["run_id"], data["status"], data["model"]) == (
        "RunCompleted",
        run_id,
        "SUCCEEDED",
        "mock",
    )
    assert (data["attempt"], data["tags"]) == (1, ["a"])
    assert log(outbox) == [("DELIVERED", 1, 200)]


async def test_later_deliveries_wait_for_a_failed_one(
    outbox: OutboxStage, receiver: Receiver, settings: Settings
) -> None:
    outbox.subscribe("hook", "webhook", receiver.url, SECRET)
    ended = outbox.complete(3)
    receiver.answers = [(500, {}), (503, {})]
    for expected in (0, 0):
        assert await sent(settings) == expected
        assert {request.run_id for request in receiver.requests} == {ended[0]}
        clock.move(outbox.connection, timedelta(minutes=10))
    assert await sent(settings) == 3
    assert [request.run_id for request in receiver.requests] == [ended[0], ended[0], *ended]
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 3
    assert log(outbox) == [("DELIVERED", 3, 200), ("DELIVERED", 1, 200), ("DELIVERED", 1, 200)]


async def test_failing_receiver_delays_only_its_own_subscription(
    outbox: OutboxStage, receiver: Receiver, settings: Settings
) -> None:
    outbox.subscribe("bad", "webhook", receiver.url, SECRET)
    with receiving() as other:
        outbox.subscribe("good", "webhook", other.url, SECRET)
        receiver.answers = [(500, {})]
        ended = outbox.complete(2)
        assert await sent(settings) == 2
        assert [request.run_id for request in other.requests] == ended


async def test_a_redirect_is_not_followed(outbox: OutboxStage, receiver: Receiver, settings: Settings) -> None:
    with receiving() as elsewhere:
        outbox.subscribe("hook", "webhook", receiver.url, SECRET)
        receiver.answers = [(302, {"location": elsewhere.url}), (307, {"location": elsewhere.url})]
        outbox.complete(1)
        assert await sent(settings) == 0
        assert elsewhere.requests == []
        assert log(outbox) == [("PENDING", 1, 302)]


async def test_status_gone_pauses_the_subscription_and_loses_nothing(
    outbox: OutboxStage, receiver: Receiver, settings: Settings
) -> None:
    outbox.subscribe("hook", "webhook", receiver.url, SECRET)
    receiver.answers = [(410, {})]
    ended = outbox.complete(2)
    assert await sent(settings) == 0
    (state,) = outbox.do(ops.outbox.list_subscriptions())
    assert state.subscription.paused_at is not None
    assert state.subscription.pause_reason == "the receiver responded with 410 Gone"
    assert state.pending == 2
    clock.move(outbox.connection, timedelta(days=1))
    assert await sent(settings) == 0
    assert len(receiver.requests) == 1
    outbox.do(ops.outbox.resume_subscription("hook"))
    assert await sent(settings) == 2
    assert [request.run_id for request in receiver.requests] == [ended[0], *ended]


async def test_retry_after_is_honoured(outbox: OutboxStage, receiver: Receiver, settings: Settings) -> None:
    outbox.subscribe("hook", "webhook", receiver.url, SECRET)
    receiver.answers = [(429, {"retry-after": "3600"})]
    outbox.complete(1)
    assert await sent(settings) == 0
    (delivery,) = outbox.do(ops.outbox.list_deliveries("hook", "PENDING", None, 10))
    assert delivery.due_at - delivery.tried_at == timedelta(hours=1)
    clock.move(outbox.connection, timedelta(minutes=59))
    assert await sent(settings) == 0
    clock.move(outbox.connection, timedelta(minutes=2))
    assert await sent(settings) == 1


async def test_subscription_is_paused_after_the_last_attempt(
    outbox: OutboxStage, receiver: Receiver, settings: Settings
) -> None:
    outbox.subscribe("hook", "webhook", receiver.url, SECRET)
    ended = outbox.complete(2)
    receiver.answers = [(500, {})] * (len(SCHEDULE) + 1)
    for _ in range(len(SCHEDULE) + 1):
        assert await sent(settings) == 0
        clock.move(outbox.connection, timedelta(days=1.2))
    (state,) = outbox.do(ops.outbox.list_subscriptions())
    assert f"failed {len(SCHEDULE) + 1} times" in state.subscription.pause_reason
    assert log(outbox) == [("FAILED", len(SCHEDULE) + 1, 500), ("PENDING", 0, None)]
    outbox.do(ops.outbox.resume_subscription("hook"))
    assert await sent(settings) == 1
    assert receiver.requests[-1].run_id == ended[1]


async def test_delivery_can_be_repeated_on_request(outbox: OutboxStage, receiver: Receiver, settings: Settings) -> None:
    outbox.subscribe("hook", "webhook", receiver.url, SECRET)
    outbox.complete(1)
    assert await sent(settings) == 1
    (delivery,) = outbox.do(ops.outbox.list_deliveries("hook", None, None, 10))
    outbox.do(ops.outbox.redeliver(delivery.id))
    assert await sent(settings) == 1
    first, second = receiver.requests
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert json.loads(first.body) == json.loads(second.body)
    with pytest.raises(SubscriptionNotFound):
        outbox.do(ops.outbox.redeliver(delivery.id + 1))


async def test_both_secrets_verify_while_one_is_replaced(
    outbox: OutboxStage, receiver: Receiver, settings: Settings
) -> None:
    outbox.subscribe("hook", "webhook", receiver.url, SECRET)
    newer = envelope.new_secret()
    outbox.do(ops.outbox.rotate_secret("hook", newer))
    outbox.complete(1)
    assert await sent(settings) == 1
    for secret in (SECRET, newer):
        verified(receiver.requests[0], secret)


async def test_receiver_that_never_responds_times_out(
    outbox: OutboxStage, receiver: Receiver, database_url: str
) -> None:
    impatient = Settings(database_url=database_url, webhook_allow_private=True, webhook_seconds=0.2)
    receiver.hang.clear()
    outbox.subscribe("hook", "webhook", receiver.url, SECRET)
    outbox.complete(1)
    assert await sent(impatient) == 0
    (delivery,) = outbox.do(ops.outbox.list_deliveries("hook", "PENDING", None, 10))
    assert delivery.response_code is None
    assert delivery.error


async def test_receiver_that_responds_byte_by_byte_times_out(outbox: OutboxStage, database_url: str) -> None:
    impatient = Settings(database_url=database_url, webhook_allow_private=True, webhook_seconds=0.5)
    listening = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def drip() -> None:
        connection, _ = listening.accept()
        connection.recv(65536)
        try:
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            while not over.wait(0.05):
                connection.sendall(b"x")
        except OSError:
            pass
        finally:
            connection.close()

    thread = threading.Thread(target=drip)
    thread.start()
    outbox.subscribe("hook", "webhook", f"http://127.0.0.1:{listening.getsockname()[1]}/", SECRET)
    outbox.complete(1)
    assert await sent(impatient) == 0
    over.set()
    thread.join()
    listening.close()
    (delivery,) = outbox.do(ops.outbox.list_deliveries("hook", "PENDING", None, 10))
    assert "within 0.5 s" in delivery.error


async def test_unprintable_response_is_stored_without_nul(outbox: OutboxStage, settings: Settings) -> None:
    """The database rejects NUL: the attempt would not be counted, and the event would be sent again forever."""
    listening = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 500 Not\0 \x1b[31mtoday\r\ncontent-length: 0\r\n\r\n")

    thread = threading.Thread(target=answer)
    thread.start()
    outbox.subscribe("hook", "webhook", f"http://127.0.0.1:{listening.getsockname()[1]}/", SECRET)
    outbox.complete(1)
    assert await sent(settings) == 0
    thread.join()
    listening.close()
    (delivery,) = outbox.do(ops.outbox.list_deliveries("hook", "PENDING", None, 10))
    assert (delivery.attempts, delivery.error) == (1, "responded with 500 Not   [31mtoday")


async def test_a_private_address_is_refused_when_it_is_called(
    outbox: OutboxStage, receiver: Receiver, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that resolved to a public address when it was subscribed now resolves to a private one."""
    inside = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", 443))]
    outside = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 443))]
    outbox.subscribe("hook", "webhook", "https://hooks.example/x", SECRET)
    outbox.complete(1)
    tried = []
    monkeypatch.setattr(socket, "create_connection", lambda address, *_: tried.append(address))
    for answer in (inside, outside + inside):
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, answer=answer, **__: answer)
        assert await sent(Settings(database_url=database_url)) == 0
        clock.move(outbox.connection, timedelta(hours=1))
    assert tried == []
    (delivery,) = outbox.do(ops.outbox.list_deliveries("hook", "PENDING", None, 10))
    assert "169.254.169.254, which is not a public address" in delivery.error


async def test_only_the_checked_address_is_called(
    outbox: OutboxStage, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name resolves to another address each time, so it is resolved only once."""
    asked: list[str] = []
    tried: list[Any] = []

    def rebinding(host: str, *_: Any, **__: Any) -> Any:
        asked.append(host)
        address = "93.184.216.34" if len(asked) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443))]

    def refuse(address: Any, *_: Any) -> Any:
        tried.append(address)
        raise ConnectionRefusedError(f"{address} refused")

    outbox.subscribe("hook", "webhook", "https://hooks.example/x", SECRET)
    outbox.complete(1)
    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    monkeypatch.setattr(socket, "create_connection", refuse)
    assert await sent(Settings(database_url=database_url)) == 0
    assert asked == ["hooks.example"]
    assert tried == [("93.184.216.34", 443)]


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
        "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1%eth0", "fd00::1", "ff02::1", "::ffff:127.0.0.1",
        "2002:7f00:1::", "64:ff9b::7f00:1", "fec0::1", "::127.0.0.1", "::10.0.0.1", "::ffff:0:127.0.0.1",
    ],
)  # fmt: skip
def test_private_address_is_not_public(address: str) -> None:
    assert not addresses.is_public(address)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "64:ff9b::5db8:d822"])
def test_public_address_is_public(address: str) -> None:
    assert addresses.is_public(address)


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example/", "ftp://hooks.example/", "https://", "https://user:pw@hooks.example/",
        "https://hooks.example/#x", "https://127.0.0.1/", "https://[::1]/", "https://hooks.example:99999/",
        "https://hooks.example/\r\nx: y", "hooks.example", "https://hooks.example:0/",
    ],
)  # fmt: skip
def test_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(BadInput):
        addresses.endpoint_of(url, allow_private=False)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_c2hvcnQ=", "whsec_!!!!", "plain" * 8])
def test_invalid_secret_is_refused(secret: str) -> None:
    with pytest.raises(BadInput):
        envelope.check_secret(secret)


def test_the_delay_follows_the_schedule_and_the_receiver() -> None:
    failed = Answer(False, 500)
    assert delay_of(0, failed, 0.5) == 5
    assert delay_of(0, failed, 0.0) == pytest.approx(4.5)
    assert delay_of(1, failed, 0.5) == 300
    assert delay_of(1, Answer(False, 503, retry_after=400.0), 0.5) == 400
    assert delay_of(1, Answer(False, 503, retry_after=1.0), 0.5) == 300
    assert delay_of(len(SCHEDULE), failed, 0.5) is None


def test_retry_after_is_a_number_or_a_date() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    assert retry_after_of("120", now) == 120
    assert retry_after_of("Tue, 01 Jan 2030 00:02:00 GMT", now) == 120
    assert retry_after_of("Tue, 01 Jan 2019 00:02:00 GMT", now) == 0
    assert retry_after_of("99999999999999", now) == 86400
    assert retry_after_of("soon", now) is None
    assert retry_after_of(None, now) is None
