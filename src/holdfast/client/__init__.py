"""Clients: submit runs, wait for them, steer them; blocking and asynchronous, from one table of calls."""

from holdfast.client.asynchronous import AsyncClient
from holdfast.client.blocking import Client
from holdfast.client.handles import AsyncRun, Run
from holdfast.client.requests import Asker, Submission, SubmitOptions

__all__ = ["Asker", "AsyncClient", "AsyncRun", "Client", "Run", "Submission", "SubmitOptions"]
