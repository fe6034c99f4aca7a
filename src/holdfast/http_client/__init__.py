"""Clients for the HTTP API, with the calls of `Client` and `AsyncClient`: code written for one runs on the other.

Requests and answers follow from the declarations in `holdfast.verbs`. Here is how requests are sent: when one is sent
again (`retry_policy`), and which error a problem document stands for (`refusals`).
"""

from holdfast.http_client.asynchronous import AsyncHttpClient
from holdfast.http_client.blocking import HttpClient

__all__ = ["AsyncHttpClient", "HttpClient"]
