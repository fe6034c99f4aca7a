"""Clients for the HTTP API, with the calls of `Client` and `AsyncClient`: code written for one runs on the other.

Requests and answers follow from the declarations in `holdfast.verbs`. This package sends them: it decides when a
request is repeated (`retry_policy`), and which error a problem document stands for (`refusals`).
"""

from holdfast.http_client.asynchronous import AsyncHttpClient
from holdfast.http_client.blocking import HttpClient

__all__ = ["AsyncHttpClient", "HttpClient"]
