"""The parts of the executors on Ray that need no Ray: addresses, resources, ids and messages."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.execution import Settled
from holdfast.domain.reasons import ReasonCode
from holdfast.domain.settling import Failed, HandedBack, NotBegun, Outcome, Stopped, Succeeded
from holdfast.domain.values import AttemptRef, Claim, NewRun, StoredResult
from holdfast.executors.ray_addresses import RayTooOld, gcs, job_server, require_version
from holdfast.executors.ray_messages import (
    frame,
    messages_of,
    received_claim,
    received_outcome,
    sent_claim,
    sent_outcome,
)
from holdfast.executors.ray_reconciler import attempt_of, submission_id
from holdfast.executors.ray_resources import memory_bytes, of_actor, of_job
from holdfast.runtime.settings import load

CLAIM = Claim("run", 2, 1, "task", "queue", '{"n": 1}', b"\x01\xff", None, 0, 0.5, None, None, 3, "2026-01-01")


PRIVATE = ["http://127.0.0.1:8265", "http://10.1.2.3:8265/", "https://100.64.0.1:8265"]


@pytest.fixture
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_USE_TLS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_token")
@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_address_is_accepted_without_a_token(address: str) -> None:
    assert job_server([address]) == address.rstrip("/")


@pytest.mark.usefixtures("no_token")
def test_whether_there_is_a_token_must_be_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE")
    for find, address in ((job_server, PRIVATE[0]), (gcs, "127.0.0.1:6379")):
        with pytest.raises(ValueError, match="RAY_AUTH_MODE"):
            find([address])
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with pytest.raises(ValueError, match="RAY_AUTH_TOKEN"):
        gcs(["127.0.0.1:6379"])


@pytest.mark.usefixtures("no_token")
def test_a_public_address_needs_a_token_and_encryption(monkeypatch: pytest.MonkeyPatch) -> None:
    for find, address in ((job_server, "https://8.8.8.8:8265"), (gcs, "8.8.8.8:6379")):
        with pytest.raises(ValueError, match="public address"):
            find([address])
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    assert job_server(["https://8.8.8.8:8265"]) == "https://8.8.8.8:8265"
    with pytest.raises(ValueError, match="public address"):
        job_server(["http://8.8.8.8:8265"])


@pytest.mark.usefixtures("no_token")
def test_each_executor_finds_its_address_among_those_of_a_cluster() -> None:
    addresses = ["http://127.0.0.1:8265", "127.0.0.1:6379"]
    assert (job_server(addresses), gcs(addresses)) == tuple(addresses)


@pytest.mark.parametrize("address", ["", "127.0.0.1:6379", "ray://head:10001", "file:///etc/passwd"])
def test_address_that_is_not_a_job_server_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="HOLDFAST_RAY_ADDRESS"):
        job_server([address])


@pytest.mark.parametrize("address", ["", "http://127.0.0.1:8265", "ray://head:10001", "head"])
def test_address_that_is_not_a_gcs_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="HOLDFAST_RAY_ADDRESS"):
        gcs([address])


def test_ray_version_that_is_too_old_is_refused() -> None:
    require_version("2.60.0")
    require_version("3.0.0.dev0")
    with pytest.raises(RayTooOld, match="too old"):
        require_version("2.9.3")


@pytest.mark.parametrize(
    "variables", [{"DB_PASSWORD": "x"}, {"API_TOKEN": "x"}, {"DSN": "postgresql://me:secret@db/x"}]
)
def test_an_environment_that_would_publish_a_secret_is_refused(variables: dict[str, str]) -> None:
    profiles = json.dumps({"torch": {"env_vars": variables}})
    with pytest.raises(ConfigurationError, match="looks like a secret"):
        load({"HOLDFAST_RAY_ENVIRONMENTS": profiles})


def test_clusters_have_names() -> None:
    settings = load({"HOLDFAST_RAY_CLUSTERS": "gpu=http://10.0.0.5:8265,gpu=10.0.0.5:6379,cpu=10.0.0.6:6379"})
    assert settings.ray_addresses("gpu") == ("http://10.0.0.5:8265", "10.0.0.5:6379")
    with pytest.raises(ConfigurationError, match="it has gpu, cpu"):
        settings.ray_addresses("tpu")


def test_attempt_is_found_by_its_job_id() -> None:
    ref = AttemptRef("01a1ea1e-f904-75fa-9dac-8109f302dc6c", 3)
    assert attempt_of(submission_id(ref, "01a1ea1f-42a6-7728-88a3-0f2dabcc4ac8")) == ref
    assert attempt_of("raysubmit_abc") is None


def test_resources_are_translated_to_ray_options() -> None:
    needs: dict[str, Any] = {"cpu": 2, "gpu": 1, "memory": "4GiB", "custom": {"tpu": 1}}
    assert of_job(needs) == {
        "entrypoint_num_cpus": 2,
        "entrypoint_num_gpus": 1,
        "entrypoint_memory": 4 * 2**30,
        "entrypoint_resources": {"tpu": 1},
    }
    assert of_actor(needs) == {"num_cpus": 2, "num_gpus": 1, "memory": 4 * 2**30, "resources": {"tpu": 1}}
    assert (of_job(None), of_actor(None)) == ({}, {"num_cpus": 0})


def test_invalid_memory_size_is_refused() -> None:
    assert memory_bytes(1000) == 1000
    with pytest.raises(ValueError, match="4GiB"):
        memory_bytes("4 gigs")


def test_released_run_that_is_claimed_again_gets_another_job_id() -> None:
    ref = AttemptRef("01a1ea1e-f904-75fa-9dac-8109f302dc6c", 1)
    first, second = "01a1ea1f-42a6-7728-88a3-0f2dabcc4ac8", "01a1ea1f-42a6-7728-88a3-55c164b22588"
    assert submission_id(ref, first) != submission_id(ref, second)
    assert submission_id(ref, first) == submission_id(ref, first)


def test_an_actor_gets_what_it_needs_of_a_claim() -> None:
    (sent,) = messages_of(frame([sent_claim(CLAIM)]))
    for name in ("run_id", "number", "task", "parameters", "payload_hash", "policy", "lag", "job_id"):
        assert getattr(received_claim(sent), name) == getattr(CLAIM, name)


@pytest.mark.parametrize(
    "outcome",
    [
        Succeeded("1", None, 0.5),
        Succeeded(None, StoredResult("ref", 3, "00"), 0.5),
        Succeeded("1", None, 0.5, (NewRun("id", "task", "{}", "00", run_after=timedelta(seconds=5)),)),
        Failed({"class": "KeyError", "message": "x", "traceback": None}, False, ReasonCode.TIMEOUT, 7, None),
        Stopped(1.5),
        HandedBack(None),
        HandedBack(0.5, ReasonCode.POSTPONED, 30.0),
        NotBegun(),
        Settled(2.0),
    ],
)
def test_outcome_survives_a_round_trip(outcome: Outcome | Settled) -> None:
    (sent,) = messages_of(frame([sent_outcome(outcome)]))
    assert received_outcome(sent) == outcome
