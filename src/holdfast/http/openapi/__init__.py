"""The OpenAPI 3.1 document: built from the table of routes, so that it matches what the server does."""

from holdfast.http.openapi.document import build

__all__ = ["build"]
