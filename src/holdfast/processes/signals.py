"""The stop signals that this process has received.

The exception that a handler raises can be lost: Python drops it in a finalizer or a callback. So a service checks this
list before it starts to serve.
"""

from __future__ import annotations

requested: list[int] = []
