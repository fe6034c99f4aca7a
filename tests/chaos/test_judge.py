"""Tests of the judge: each kind of violation is detected, and a correct database has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import Client
from holdfast.domain.settling import Failed, Succeeded
from holdfast.domain.values import Claim
from holdfast.runtime.settings import Settings
from tests.chaos.judge import Judge, Notes
from tests.chaos.load import Ledger
from tests.integration.jobs_support import Stage, new_run

ERROR = {"class": "ResultNotStorable", "message": "refused", "traceback": None}


class Trial:
    """A few runs controlled by the test, with the notes of their bodies and the ledger of their users."""

    def __init__(self, url: str, directory: Path) -> None:
        self.stage = Stage(url)
        self.client = Client(Settings(database_url=url, artifacts=str(directory)))
        self.ledger = Ledger()
        self._notes = directory / "notes"
        self._url = url
        self.stage.connection.execute("create table effects (run_id uuid not null, attempt int not null)")
        self.stage.connection.execute("create table orders (run_id uuid primary key)")

    def close(self) -> None:
        self.client.close()
        self.stage.close()

    def submit(self, task: str = "chaos.plain") -> str:
        ((answer),) = self.stage.submit(new_run(task=task, policy='{"max_attempts": 1}', parameters={"n": 1}))
        self.ledger.runs[answer.run.id] = task
        return answer.run.id

    def claim(self, *noted: str) -> Claim:
        (claim,) = self.stage.claim(1)
        with self._notes.open("a") as file:
            file.writelines(f"{what} {claim.run_id} {claim.number}\n" for what in noted)
        return claim

    def succeed(self, claim: Claim) -> str:
        self.stage.end([claim], Succeeded("1"))
        return claim.run_id

    def fail(self, claim: Claim) -> str:
        self.stage.end([claim], Failed(ERROR, retryable=False))
        return claim.run_id

    def write_effect(self, run_id: str, attempt: int = 1) -> None:
        self.stage.connection.execute("insert into effects values (%s, %s)", [run_id, attempt])

    def violations(self) -> list[str]:
        judge = Judge(self.stage.connection, self.client, self.ledger, Notes(self._notes))
        return [*judge.stuck(), *judge.violations(self._url)]

    def kinds(self) -> set[str]:
        return {one.partition(":")[0] for one in self.violations()}


@pytest.fixture
def trial(database_url: str, tmp_path: Path) -> Iterator[Trial]:
    trial = Trial(database_url, tmp_path)
    yield trial
    trial.close()


def test_runs_that_ended_as_expected_are_not_violations(trial: Trial) -> None:
    trial.submit()
    trial.ledger.results[trial.succeed(trial.claim("began", "returned"))] = 1
    trial.submit("chaos.doomed")
    trial.fail(trial.claim("began"))
    trial.submit("chaos.effect")
    trial.write_effect(trial.succeed(trial.claim("began", "returned")))
    assert trial.violations() == []


def acknowledged_and_gone(trial: Trial) -> None:
    trial.ledger.runs["01a1e88c-2f85-7000-bba3-dcebe5000001"] = "chaos.plain"


def effect_gone(trial: Trial) -> None:
    trial.submit("chaos.effect")
    trial.succeed(trial.claim("began", "returned"))


def effect_twice(trial: Trial) -> None:
    trial.submit("chaos.effect")
    run_id = trial.succeed(trial.claim("began", "returned"))
    trial.write_effect(run_id)
    trial.write_effect(run_id)


def there_although_rolled_back(trial: Trial) -> None:
    trial.submit()
    trial.ledger.rolled_back.add(trial.succeed(trial.claim("began", "returned")))


def left_in_the_queue(trial: Trial) -> None:
    trial.submit()


def left_with_a_worker(trial: Trial) -> None:
    trial.submit()
    trial.claim("began")


def success_recorded_as_failure(trial: Trial) -> None:
    trial.submit()
    trial.fail(trial.claim("began", "returned"))


def failed_without_having_run(trial: Trial) -> None:
    trial.submit("chaos.doomed")
    trial.fail(trial.claim())


def failed_for_no_reason(trial: Trial) -> None:
    trial.submit()
    trial.fail(trial.claim("began"))


def another_result(trial: Trial) -> None:
    trial.submit()
    trial.ledger.results[trial.succeed(trial.claim("began", "returned"))] = 2


def acknowledged_cancel_that_did_nothing(trial: Trial) -> None:
    trial.submit()
    trial.ledger.cancelled.add(trial.succeed(trial.claim("began", "returned")))


def cancelled_without_a_request(trial: Trial) -> None:
    trial.client.cancel(trial.submit())


def counted_twice(trial: Trial) -> None:
    trial.submit()
    trial.succeed(trial.claim("began", "returned"))
    trial.stage.connection.execute(
        "insert into holdfast.tallies (task, kind, amount) values ('chaos.plain', 'SUCCEEDED', 1)"
    )


@pytest.mark.parametrize(
    ("corruption", "kind"),
    [
        (acknowledged_and_gone, "LOST"),
        (effect_gone, "LOST"),
        (effect_twice, "DOUBLED"),
        (there_although_rolled_back, "DOUBLED"),
        (left_in_the_queue, "STUCK"),
        (left_with_a_worker, "STUCK"),
        (success_recorded_as_failure, "MISJUDGED"),
        (failed_without_having_run, "MISJUDGED"),
        (failed_for_no_reason, "WRONG"),
        (another_result, "WRONG"),
        (acknowledged_cancel_that_did_nothing, "WRONG"),
        (cancelled_without_a_request, "WRONG"),
        (counted_twice, "WRONG"),
    ],
)
def test_a_violation_is_reported_with_its_kind(trial: Trial, corruption: Callable[[Trial], None], kind: str) -> None:
    corruption(trial)
    assert kind in trial.kinds()
