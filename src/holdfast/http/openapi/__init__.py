"""The OpenAPI 3.1 document: made from the table of routes, so that it says what the server does."""

from holdfast.http.openapi.document import build

__all__ = ["build"]
