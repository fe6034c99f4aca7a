"""The signals that asked this process to end, so far.

The exception that a handler raises can get lost: Python drops it in a finalizer or a callback. Whatever begins to serve
looks here first.
"""

from __future__ import annotations

requested: list[int] = []
