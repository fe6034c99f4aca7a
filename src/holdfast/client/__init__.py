"""Clients on the database: submit runs, wait for them and control them; blocking and asynchronous."""

from holdfast.client.asynchronous import AsyncClient
from holdfast.client.blocking import Client
from holdfast.verbs.handles import AsyncRun, Run
from holdfast.verbs.options import Submission, SubmitOptions

__all__ = ["AsyncClient", "AsyncRun", "Client", "Run", "Submission", "SubmitOptions"]
