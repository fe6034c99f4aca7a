"""Routes as data: a path, a method, the scope it needs and what the OpenAPI document says about it.

Flask's rules, the check of scopes and the document are all made from the same tables, so none can forget a route.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flask import Blueprint

from holdfast.http.answers import Answer

# Called with the Call, and with the parts of the path by name.
View = Callable[..., Answer]


class Route(NamedTuple):
    """One operation. `scope` is None where no token is asked for.

    `always` lets a request pass while Postgres is away and nobody can say whose it is: as a stranger's.
    """

    method: str
    path: str
    view: View
    scope: str | None
    operation: dict[str, Any]
    always: bool = False


@dataclass(frozen=True)
class Noun:
    """The routes about one thing."""

    name: str
    about: str
    routes: list[Route] = field(default_factory=list)

    def endpoints(self) -> dict[str, Route]:
        """Each route by the name that Flask knows it under."""
        return {f"{self.name}.{route.operation['operationId']}": route for route in self.routes}

    def blueprint(self) -> Blueprint:
        made = Blueprint(self.name, __name__)
        for route in self.routes:
            made.add_url_rule(
                route.path.replace("{", "<").replace("}", ">"),
                route.operation["operationId"],
                route.view,
                methods=[route.method],
                provide_automatic_options=False,
            )
        return made
