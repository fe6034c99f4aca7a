"""docs/performance.md out of the figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def page(made: Mapping[str, Any]) -> str:
    return ""
