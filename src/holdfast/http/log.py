"""The log of the API server: gunicorn's messages go to the same log as everything else."""

from __future__ import annotations

from typing import Any

from gunicorn.glogging import Logger  # type: ignore[import-untyped]


class GunicornLog(Logger):  # type: ignore[misc]
    """gunicorn's logger, without its own handlers."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for handler in self.error_log.handlers[:]:
            self.error_log.removeHandler(handler)
        self.error_log.propagate = True
