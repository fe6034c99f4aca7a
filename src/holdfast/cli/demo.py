"""holdfast demo, and its output: scenes on stdout, with one line that is redrawn on a terminal."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli import exits, output
from holdfast.cli.session import command_name
from holdfast.cli.watching import bar, fraction, headline, how_far

if TYPE_CHECKING:
    from holdfast.domain.records import EventRecord
    from holdfast.verbs.handles import RunFields

INDENT = "   "


class TerminalNarrator:
    """A narrator for a terminal, a pipe or a log."""

    def __init__(self) -> None:
        self._checks: list[bool] = []
        self._live = False
        self._last = ""
        self._frame = 0
        self._redraws = output.is_coloured(sys.stdout)
        unicode = output.is_unicode()
        self._marks = {True: "✓" if unicode else "ok", False: "✗" if unicode else "FAILED"}
        self._dot = "·" if unicode else "-"

    def opening(self) -> None:
        self._line(output.styled("Holdfast, end to end", bold=True))
        self._line("")

    def end(self, gone: bool) -> None:
        self._line("")
        self.check(gone, "no processes or files are left behind")

    def closing(self, seconds: float) -> None:
        text = f"{sum(self._checks)} of {len(self._checks)} checks succeeded, in {seconds:.1f} s"
        self._line("")
        self._line(output.styled(text, bold=True, fg="green" if self.all_passed() else "red"))
        program = command_name()
        self._line(output.styled(f"next: {program} up, and in another terminal {program} submit mock --wait", dim=True))

    def scene(self, number: int, title: str, about: str) -> None:
        self._line("")
        self._line(output.styled(f"{number}  {title}", bold=True, fg="cyan"))
        for part in _wrapped(about):
            self._line(INDENT + output.styled(part, dim=True))

    def say(self, text: str) -> None:
        for index, part in enumerate(_wrapped(output.visible(text))):
            self._line(f"{INDENT}{self._dot if index == 0 else ' '} {part}")

    def check(self, holds: bool, text: str) -> None:
        self._checks.append(holds)
        mark = output.styled(self._marks[holds], fg="green" if holds else "red", bold=True)
        parts = _wrapped(output.visible(text))
        self._line(f"{INDENT}{mark} {parts[0]}")
        for part in parts[1:]:
            self._line(f"{INDENT}  {part}")

    def progress(self, run: RunFields, name: str = "") -> None:
        part = fraction(run.progress) if run.status == "RUNNING" else 1.0 if run.status == "SUCCEEDED" else None
        title = f"{name}: {headline(run)}" if name else headline(run)
        words = [title, bar(part) if part is not None else "", how_far(run.progress) if part else ""]
        if self._redraws:
            self._redraw("  ".join(word for word in words if word), output.COLOURS[str(run.status)])
        elif self._last != words[0]:
            self._last = words[0]
            self._line(f"{INDENT}{self._dot} {words[0]}")

    def counted(self, done: int, total: int, unit: str) -> None:
        if self._redraws:
            self._redraw(f"{bar(done / total if total else 1.0)}  {done}/{total} {unit}", "cyan")

    def events(self, events: Sequence[EventRecord]) -> None:
        first = events[0].at
        for event in events:
            since = (event.at - first).total_seconds()
            attempt = f"attempt {event.attempt}" if event.attempt else ""
            at = f"{event.at.astimezone():%H:%M:%S.%f}"[:-3]
            after = f"+{since:.2f} s"
            status = output.styled(f"{event.to_status or '':<9}", fg=output.COLOURS.get(event.to_status or ""))
            self._line(
                f"{INDENT}  {at}  {after:>9}  {event.type:<10} {status}  {attempt}  {event.reason or ''}".rstrip()
            )

    def all_passed(self) -> bool:
        return bool(self._checks) and all(self._checks)

    def _redraw(self, text: str, colour: str) -> None:
        self._frame += 1
        output.redraw(f"{INDENT}{output.spinner(self._frame, sys.stdout)} {text}", colour, sys.stdout)
        self._live = True

    def _line(self, text: str) -> None:
        if self._live:
            sys.stdout.write("\r\x1b[K")
            self._live = False
        output.data(text)
        sys.stdout.flush()


def _wrapped(text: str) -> list[str]:
    """The text in lines that fit the terminal; uncut elsewhere."""
    if not output.is_terminal():
        return [text]
    import textwrap

    room = max(shutil.get_terminal_size().columns - len(INDENT) - 3, 30)
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]


@click.command()
@click.option(
    "--executor",
    type=click.Choice(["process", "ray_core"]),
    default="process",
    show_default=True,
    help="Where runs are executed. With ray_core, the demo starts its own Ray cluster.",
)
def demo(executor: str) -> int:
    """Demonstrate the main features on a temporary Postgres.

    The scenes are a run that succeeds, one that is retried, a job that fans out, and a worker that is killed.

    Everything happens in a temporary directory under .holdfast, which is removed at the end. The exit code is 0 only
    if every check succeeded.
    """
    from holdfast.demo import play

    began = time.monotonic()
    narrator = TerminalNarrator()
    narrator.opening()
    kept = play(narrator, Path.cwd(), executor)
    narrator.closing(time.monotonic() - began)
    if not kept:
        output.error("some checks failed; see above")
    return exits.OK if kept else exits.ERROR
