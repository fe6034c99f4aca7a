"""Following a run on stderr: one line redrawn on a terminal, a line per change elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from holdfast.cli import output
from holdfast.cli.output import rendered

if TYPE_CHECKING:
    from holdfast.domain.values import RunRecord
    from holdfast.verbs.facades import Calls
    from holdfast.verbs.handles import Run, RunFields

ASK_EVERY = 0.2
DRAW_EVERY = 0.1
# If a run has not started after this many seconds, the reason is shown.
EXPLAIN_AFTER = 1.5


def follow(client: Calls, run: Run, timeout: float | None = None) -> Run:
    """Show the progress of a run until it has ended; raises WaitTimeout after `timeout` seconds."""
    from holdfast.client.waiting import timed_out

    board = Redrawn() if output.is_coloured(sys.stderr) else Lines()
    began = time.monotonic()
    asked_why = 0.0
    hint: str | None = None
    try:
        while True:
            elapsed = time.monotonic() - began
            if run.status != "PENDING":
                hint = None
            elif elapsed - asked_why > EXPLAIN_AFTER:
                hint, asked_why = rendered(client.why(run)[0].detail, {}), elapsed
            board.show(run, hint)
            if run.status.final:
                return run
            left = None if timeout is None else timeout - elapsed
            if left is not None and left <= 0:
                raise timed_out(run.id, timeout)
            _pause(board, run, hint, ASK_EVERY if left is None else min(ASK_EVERY, left))
            run = client.get(run)
    finally:
        board.close()


def _pause(board: Redrawn | Lines, run: Run, hint: str | None, seconds: float) -> None:
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        time.sleep(min(left, DRAW_EVERY))
        if isinstance(board, Redrawn):
            board.show(run, hint)


def how_far(progress: dict[str, Any] | None) -> str:
    """Progress in words: `6/24 months, simulating`."""
    if not progress:
        return ""
    done, total = progress.get("done"), progress.get("total")
    amount = f"{done:g}" + (f"/{total:g}" if total is not None else "") if done is not None else ""
    words = " ".join(word for word in (amount, progress.get("unit")) if word)
    return output.visible(", ".join(word for word in (words, progress.get("stage")) if word))


def remark(run: Run | RunRecord) -> str:
    """How far a running run is, and what became of others."""
    if run.status == "RUNNING":
        return how_far(run.progress) or run.reason or ""
    return "" if run.status == "SUCCEEDED" else run.last_error or run.reason or ""


def fraction(progress: dict[str, Any] | None) -> float | None:
    if not progress or not progress.get("total") or progress.get("done") is None:
        return None
    return min(max(float(progress["done"]) / float(progress["total"]), 0.0), 1.0)


def bar(part: float, room: int = 20) -> str:
    full, empty = ("█", "░") if output.is_unicode(sys.stderr) else ("#", ".")
    filled = round(part * room)
    return full * filled + empty * (room - filled)


def headline(run: RunFields) -> str:
    """Status and attempt in words."""
    words = [str(run.status)]
    if run.attempt_count and not (run.attempt_count == 1 and run.status == "SUCCEEDED"):
        words.append(f"attempt {run.record.attempts}")
    return ", ".join(words)


class Redrawn:
    """One line of a terminal, redrawn at every change."""

    def __init__(self) -> None:
        self._frame = 0
        self._began = time.monotonic()

    def show(self, run: Run, hint: str | None) -> None:
        self._frame += 1
        mark = "" if run.status.final else output.spinner(self._frame, sys.stderr) + " "
        part = 1.0 if run.status == "SUCCEEDED" else fraction(run.progress)
        pieces = [headline(run), bar(part) if part is not None else "", how_far(run.progress)]
        pieces += [output.duration(time.monotonic() - self._began), _trouble(run, hint)]
        text = mark + "  ".join(piece for piece in pieces if piece)
        output.redraw(text, output.COLOURS.get(str(run.status)), sys.stderr)

    def close(self) -> None:
        sys.stderr.write("\n")
        sys.stderr.flush()


class Lines:
    """A line for each change, for logs and pipes."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, run: Run, hint: str | None) -> None:
        words = [headline(run), how_far(run.progress), _trouble(run, hint)]
        line = "; ".join(word for word in words if word)
        if line != self._last:
            self._last = line
            output.note(line)

    def close(self) -> None:
        pass


def _trouble(run: Run, hint: str | None) -> str:
    if hint:
        return output.visible(hint)
    error = run.last_error if run.status != "SUCCEEDED" else None
    return output.visible(" ".join((error or run.reason or "").split()))
