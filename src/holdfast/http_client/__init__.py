"""Clients for the HTTP API, with the names of `Client` and `AsyncClient`: code written for one runs on the other.

What is asked and how the answer is read is written once, as values (`asks`); so is when to ask again (`patience`) and
what a problem document means (`refusals`). The two clients only send.
"""

from holdfast.http_client.asynchronous import AsyncHttpClient
from holdfast.http_client.blocking import HttpClient

__all__ = ["AsyncHttpClient", "HttpClient"]
