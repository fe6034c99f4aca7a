"""The context of a call of the jobs API: the run that makes it, if any, and a client for its database."""

from __future__ import annotations

from holdfast.client.blocking import Client
from holdfast.client.shared import client_for
from holdfast.domain.context import find_run
from holdfast.runtime.settings import load


def client() -> Client:
    """A client for the database of the current run, or else for the configured database."""
    run = find_run()
    return client_for(load(), run.link.database_url if run is not None else None)


def get_current_job_id() -> str | None:
    """The id of the job whose task is running here; None outside of a job."""
    run = find_run()
    return run.job_id if run is not None else None
