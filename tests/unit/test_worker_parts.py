"""Parts of workers and executors, tested separately."""

from __future__ import annotations

import gc
import io
import json
import os
from pathlib import Path
from typing import get_args

import pytest

from holdfast.assembly import worker as assembly
from holdfast.assembly.services import services
from holdfast.assembly.worker import EXECUTORS, open_executors
from holdfast.cli import worker as worker_command
from holdfast.domain.errors import ConfigurationError, ResultNotStorable
from holdfast.domain.execution import Ended, Limits, TakenOver
from holdfast.domain.tasks import ExecutorName
from holdfast.domain.values import Claim
from holdfast.doorbells.poll import PollListener
from holdfast.executors.channel import Unframer, frame
from holdfast.executors.inline import InlineExecutor
from holdfast.executors.pace import Pace
from holdfast.executors.performing import clean, describe, storable
from holdfast.executors.shared_state import SharedState, make_shared_state
from holdfast.observe import emit, is_subscribed, subscribe
from holdfast.observe.logs import open_lines, write_events
from holdfast.runtime.runtime import Runtime
from holdfast.runtime.settings import Settings
from holdfast.sql import chores
from holdfast.worker import WorkerOptions
from holdfast.worker.results import AttemptResults
from holdfast.worker.session import WorkerSession
from holdfast.worker.upkeep import SERVICES


def test_every_executor_that_a_task_can_name_has_a_factory() -> None:
    assert set(EXECUTORS) == set(get_args(ExecutorName)) == set(worker_command.EXECUTORS)


@pytest.mark.parametrize(("found", "expected"), [((700, 10, 10), 10_000), ((2000, 10, 0), 10_000), ((0, 5, 5), 0)])
def test_worker_raises_the_default_threshold_of_the_collector_and_keeps_others(
    monkeypatch: pytest.MonkeyPatch, found: tuple[int, int, int], expected: int
) -> None:
    made: list[tuple[int, int, int]] = [found]
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(gc, "get_threshold", lambda: made[-1])
    monkeypatch.setattr(gc, "set_threshold", lambda *given: made.append(given))
    assembly._collect_garbage_less_often()
    assert made[-1] == (expected, *found[1:])


@pytest.mark.parametrize(("executor", "expected"), [("inline", True), ("process", True), ("ray_core", False)])
def test_worker_uses_uvloop_except_with_executors_on_ray(executor: str, expected: bool) -> None:
    options = WorkerOptions("", {"inline": InlineExecutor(), executor: InlineExecutor()}, executor, PollListener())
    assert (assembly._loop_factory(options) is not None) is expected


def test_unknown_executor_is_refused_with_the_names_of_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="there is no executor 'magic'; choose one of process, inline"):
        open_executors(Settings(), "magic", None)


def test_worker_has_its_default_executor_and_the_inline_one() -> None:
    executors = open_executors(Settings(), "process", 3)
    assert {name: executor.slots for name, executor in executors.items()} == {"inline": 10, "process": 3}
    assert {name: executor.slots for name, executor in open_executors(Settings(), "inline", 3).items()} == {"inline": 3}


def test_claim_that_another_process_has_taken_over_is_forgotten_and_not_settled() -> None:
    claim = Claim("run", 1, 0, "task", "default", "{}", b"", None, 0, 0.0, None, None, 0, "now")
    results = AttemptResults(WorkerSession(), lambda queue, delay: None)
    results.session.held["run"] = claim
    results.report([Ended(claim, TakenOver())])
    assert not results.session.held
    assert not results.pending.unsettled()
    assert results.session.counts() == (0, 0)


def test_frames_are_assembled_from_any_pieces() -> None:
    messages = [["runs", "ü", 0, [[1, 2]]], ["stop"]]
    stream = frame(messages) + frame([["withdraw"]])
    for size in (1, 3, 7, len(stream)):
        unframer = Unframer()
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert [message for piece in pieces for message in unframer.feed(piece)] == [*messages, ["withdraw"]]


def test_shared_state_is_visible_to_all_processes_that_map_it() -> None:
    descriptor, ours = make_shared_state()
    theirs = SharedState(descriptor)
    os.close(descriptor)
    assert (ours.get(), ours.runner, ours.status) == ((-1, 0.0), None, None)
    assert theirs.begin(7, 1.5)
    theirs.runner = 4711
    theirs.status = 9
    assert (ours.get(), ours.runner, ours.status) == ((7, 1.5), 4711, 9)
    ours.close()
    theirs.close()
    assert (ours.get(), ours.runner) == ((7, 1.5), 4711)


def test_revoked_run_does_not_begin() -> None:
    descriptor, ours = make_shared_state()
    theirs = SharedState(descriptor)
    os.close(descriptor)
    ours.revoke(5)
    assert theirs.begin(4, 1.0)
    assert not theirs.begin(5, 2.0)
    assert not theirs.begin(6, 2.0)
    ours.revoke(None)
    assert theirs.begin(7, 3.0)
    ours.close()
    theirs.close()


def test_unsent_results_of_a_dead_process_are_found() -> None:
    descriptor, ours = make_shared_state()
    theirs = SharedState(descriptor)
    os.close(descriptor)
    assert theirs.keep(b'["ok",0]')
    assert theirs.keep(b'["ok",1]')
    assert ours.kept() == [b'["ok",0]', b'["ok",1]']
    theirs.forget()
    assert ours.kept() == []
    assert theirs.keep(b"x" * 60_000)
    assert not theirs.keep(b"x" * 6_000)
    assert ours.kept() == [b"x" * 60_000]
    ours.close()
    theirs.close()


def test_long_runs_are_not_claimed_ahead_and_tiny_runs_are_claimed_by_the_hundred() -> None:
    pace = Pace(most=500)
    assert pace.wanted(4) == 4
    pace.record(10, 10 * 0.00001)
    assert pace.wanted(4) == 500
    pace.record(1, 2.0)
    assert pace.wanted(4) == 4
    for _ in range(30):
        pace.record(10, 10 * 0.00001)
    assert pace.wanted(4) == 500


@pytest.mark.parametrize(
    ("text", "kept"), [("a\0b", "a\\0b"), ("\ud800", "\\ud800"), ("é\U0001f40b", "é\U0001f40b"), ("", "")]
)
def test_texts_are_made_storable(text: str, kept: str) -> None:
    assert clean(text, 100) == kept


def test_long_texts_keep_both_ends() -> None:
    kept = clean("a" * 1000 + "z" * 1000, 100)
    assert kept.startswith("a" * 50)
    assert kept.endswith("z" * 50)
    assert "1900 characters left out" in kept


class Rude(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def test_error_whose_message_raises_is_still_described() -> None:
    described = describe(Rude())
    assert described["class"].endswith("Rude")
    assert described["message"] == "(the message could not be read: RuntimeError)"


@pytest.mark.parametrize(
    ("text", "limit", "fits"), [("x" * 8, 10, True), ("x" * 9, 10, False), ("é" * 4, 10, True), ("é" * 5, 10, False)]
)
def test_a_result_is_measured_in_bytes(text: str, limit: int, fits: bool) -> None:
    limits = Limits(max_result_bytes=limit)
    if fits:
        assert storable(text, limits) == f'"{text}"'
    else:
        with pytest.raises(ResultNotStorable, match="larger than 10 bytes"):
            storable(text, limits)


def test_events_reach_their_subscribers() -> None:
    seen: list[tuple[str, dict[str, object]]] = []
    stop = subscribe(lambda event, fields: seen.append((event, fields)), lambda event: event != "noise")
    assert is_subscribed("something")
    assert not is_subscribed("noise")
    emit("noise")
    emit("something", size=1)
    stop()
    emit("something")
    assert seen == [("something", {"size": 1})]


def test_log_line_is_json_on_one_line_and_debug_events_are_left_out() -> None:
    stream = io.StringIO()
    stop = write_events(open_lines(json=True, stream=stream))
    emit(
        "run.settled",
        run_id="r",
        payload_hash="h",
        worker_id="w",
        status="FAILED",
        attempt_count=1,
        error="a\nb\x1b[1m",
    )
    emit("run.settled_inline", run_id="r")
    stop()
    emit("run.settled", status="SUCCEEDED")
    [line] = stream.getvalue().splitlines()
    written = json.loads(line)
    assert written["level"] == "warning"
    assert written["error"] == "a\nb\\x1b[1m"
    assert {"run_id", "payload_hash", "worker_id", "status", "attempt_count", "at"} <= written.keys()


def test_line_for_people_cannot_be_forged() -> None:
    stream = io.StringIO()
    stop = write_events(open_lines(json=False, level="debug", stream=stream))
    emit("run.settled_inline", error="one\r\ntwo")
    stop()
    assert len(stream.getvalue().splitlines()) == 1


def test_every_service_that_can_be_due_exists(database_url: str, tmp_path: Path) -> None:
    with Runtime(Settings(database_url=database_url, artifacts=str(tmp_path))) as runtime:
        names = {service.name for service in (*SERVICES, *services(runtime))}
    assert names >= chores.NAMES
