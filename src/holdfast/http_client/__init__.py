"""Clients for the HTTP API, with the calls of `Client` and `AsyncClient`: code written for one works with the other.

The declarations in `holdfast.verbs` define requests and responses. This package sends the requests; it decides when to
retry them (`transport`), and which error to raise for a problem document (`refusals`).
"""

from holdfast.http_client.asynchronous import AsyncHttpClient
from holdfast.http_client.blocking import HttpClient

__all__ = ["AsyncHttpClient", "HttpClient"]
