"""Printing: data on stdout, everything else on stderr, in a form that the stream can show."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TextIO, TypeVar

import click

from holdfast.domain.times import written

if TYPE_CHECKING:
    from holdfast.verbs.facades import Calls

T = TypeVar("T")

COLOURS = {
    "SUCCEEDED": "green",
    "FAILED": "red",
    "LOST": "red",
    "CANCELLED": "magenta",
    "RUNNING": "cyan",
    "PENDING": "yellow",
    "ok": "green",
    "warn": "yellow",
    "fail": "red",
    "active": "green",
    "idle": "cyan",
    "draining": "yellow",
}


def tolerate_any_encoding() -> None:
    """A character that the terminal cannot show is written as an escape instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def is_terminal(stream: TextIO | None = None) -> bool:
    return (stream or sys.stdout).isatty()


def is_unicode(stream: TextIO | None = None) -> bool:
    return (getattr(stream or sys.stdout, "encoding", None) or "").lower().replace("-", "").startswith("utf8")


def is_coloured(stream: TextIO) -> bool:
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, stream: TextIO | None = None, **style: Any) -> str:
    return click.style(text, **style) if is_coloured(stream or sys.stdout) else text


def data(text: str) -> None:
    """One line of output."""
    sys.stdout.write(text + "\n")


def note(text: str) -> None:
    """One line of information on stderr."""
    sys.stdout.flush()
    # After Ctrl-C, a terminal shows ^C at the beginning of this line.
    sys.stderr.write(("\r" if is_terminal(sys.stderr) else "") + text + "\n")
    sys.stderr.flush()


def hint(text: str) -> None:
    """A suggestion for the user, shown only on a terminal."""
    if is_terminal(sys.stderr):
        note(styled(text, sys.stderr, dim=True))


def error(text: str) -> None:
    note(f"{styled('holdfast:', sys.stderr, fg='red', bold=True)} {visible(text)}")


def spinner(frame: int, stream: TextIO) -> str:
    """A character that turns as the number of the frame increases."""
    frames = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏" if is_unicode(stream) else "|/-\\"
    return frames[frame % len(frames)]


def redraw(text: str, colour: str | None, stream: TextIO) -> None:
    """Replace the last line of a terminal."""
    line = cut(text, shutil.get_terminal_size().columns - 1, stream)
    stream.write("\r\x1b[K" + styled(line, stream, fg=colour))
    stream.flush()


def document(value: Any) -> None:
    """A JSON value: indented on a terminal, on one line elsewhere. Characters that cannot be shown are escaped."""
    if is_terminal():
        text = json.dumps(value, ensure_ascii=not is_unicode(), indent=2)
        data("".join(c if c == "\n" or c.isprintable() else f"\\u{ord(c):04x}" for c in text))
    else:
        data(json.dumps(value, ensure_ascii=not is_unicode()))


def compact(value: Any) -> str:
    """A JSON value as a short text inside a line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def visible(text: str) -> str:
    """The text with control characters made visible: text that others submitted must not control this terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in " \t\n" else c.encode("unicode_escape").decode() for c in text)


class Column(NamedTuple, Generic[T]):
    """One column of a table. On a narrow terminal, ids are shortened to a unique prefix, `spare` columns
    are left out, the last one first, and `wide` columns are cut, the widest first."""

    title: str
    value: Callable[[T], object]
    wide: bool = False
    right: bool = False
    is_id: bool = False
    spare: bool = False


def table(columns: Sequence[Column[T]], records: Iterable[T]) -> None:
    """Print records as aligned columns, in the width of the terminal if there is one."""
    records = list(records)
    cells = [[column.title, *(_cell(column.value(record)) for record in records)] for column in columns]
    shown, columns = _fitted(cells, columns) if is_terminal() else (cells, columns)
    widths = [max(map(width, column)) for column in shown]
    if is_terminal():
        _cut_wide(widths, columns)
    titles, *rows = zip(*shown, strict=True)
    data(styled(_line(titles, widths, columns), bold=True))
    for row in rows:
        data(_line(row, widths, columns, paint=True))


def listing(columns: Sequence[Column[T]], records: Sequence[T], write: Callable[[T], Any], as_json: bool) -> None:
    """Print records as a table or, with `as_json`, as the JSON documents that `write` returns."""
    if as_json:
        document({"items": [write(record) for record in records]})
    else:
        table(columns, records)


def page(
    columns: Sequence[Column[T]], records: Sequence[T], write: Callable[[T], Any], cursor: str | None, as_json: bool
) -> None:
    """Print one page of a list, and how to get the next one."""
    if as_json:
        document({"items": [write(record) for record in records], "next_cursor": cursor})
        return
    table(columns, records)
    if cursor:
        note(f"for more, add --cursor {cursor}")


def plain(record: Any) -> dict[str, Any]:
    """The fields of a record by name, with times as text."""
    return {name: written(value) if name.endswith("_at") else value for name, value in record._asdict().items()}


def fields(pairs: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one per line, without those that are missing."""
    shown = [(name, _cell(value)) for name, value in pairs if value is not None]
    room = max((width(name) for name, _ in shown), default=0)
    for name, value in shown:
        text = value if value not in COLOURS else styled(value, fg=COLOURS[value])
        data(f"{styled(name.ljust(room), dim=True)}  {text}")


def width(text: str) -> int:
    """How many terminal columns a text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def cut(text: str, room: int, stream: TextIO | None = None) -> str:
    """The text in at most `room` columns."""
    if width(text) <= room:
        return text
    end = "…" if is_unicode(stream) else "..."
    kept = ""
    for c in text:
        if width(kept + c) > room - len(end):
            break
        kept += c
    return kept + end


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return when(value)
    return " ".join(visible(str(value)).split()) or "-"


Cells = list[list[str]]
GAP = 2
# What a wide column is cut to before an id is shortened, and at last; and the least that is shown of an id, which is
# its time to a quarter of a microsecond.
READABLE = 24
NARROWEST = 10
SHORTEST_ID = 18


def _fitted(cells: Cells, columns: Sequence[Column[T]]) -> tuple[Cells, list[Column[T]]]:
    """Return the columns that fit the terminal, with ids shortened if necessary. Each begins with its title."""
    pairs = list(zip(cells, columns, strict=True))
    if _excess([_least(*pair, READABLE) for pair in pairs]) > 0:
        pairs = [(_shortened(cell) if column.is_id else cell, column) for cell, column in pairs]
    while _excess([_least(*pair, NARROWEST) for pair in pairs]) > 0:
        spare = next((pair for pair in reversed(pairs) if pair[1].spare), None)
        if spare is None:
            break
        pairs.remove(spare)
    return [cell for cell, _ in pairs], [column for _, column in pairs]


def _least(cells: Sequence[str], column: Column[Any], wide: int) -> int:
    full = max(map(width, cells))
    return min(full, max(wide, width(column.title))) if column.wide else full


def _shortened(cells: Sequence[str]) -> list[str]:
    """Return a title and ids, with the ids cut to a length at which all of them differ."""
    title, *ids = cells
    length = next(n for n in range(SHORTEST_ID, 100) if len({one[:n] for one in ids}) == len(set(ids)))
    return [title, *(one[:length].rstrip("-") for one in ids)]


def _excess(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1) - shutil.get_terminal_size().columns


def _cut_wide(widths: list[int], columns: Sequence[Column[Any]]) -> None:
    """Shrink the widest of the wide columns until the line fits or none can be shrunk further."""
    least = {index: max(NARROWEST, width(one.title)) for index, one in enumerate(columns) if one.wide}
    for _ in range(_excess(widths)):
        index = max((index for index in least if widths[index] > least[index]), key=widths.__getitem__, default=None)
        if index is None:
            break
        widths[index] -= 1


def _line(cells: Sequence[str], widths: Sequence[int], columns: Sequence[Column[Any]], paint: bool = False) -> str:
    shown = []
    for cell, room, column in zip(cells, widths, columns, strict=True):
        text = cut(cell, room) if is_terminal() else cell
        blank = " " * (room - width(text))
        if paint and cell in COLOURS:
            text = styled(text, fg=COLOURS[cell])
        shown.append(blank + text if column.right else text + blank)
    return "  ".join(shown).rstrip()


def when(at: datetime) -> str:
    """A time: in a readable form on a terminal, exact elsewhere."""
    if not is_terminal():
        return written(at)
    local, today = at.astimezone(), datetime.now().astimezone()
    if local.date() == today.date():
        return f"{local:%H:%M:%S}"
    return f"{local:%Y-%m-%d %H:%M}"


def duration(seconds: float) -> str:
    """A duration in a suitable unit."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172800 else f"{seconds / 86400:.0f} d"


def took(started_at: datetime | None, finished_at: datetime | None) -> str | None:
    """How long something took, if it has ended."""
    return duration((finished_at - started_at).total_seconds()) if started_at and finished_at else None


_TIME = re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
_ID = re.compile(r"(?<=\bworker )[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


def worker_names(client: Calls) -> dict[str, str]:
    """The names of workers by id; empty if the token may not read them."""
    from holdfast.domain.errors import NotAllowed

    try:
        return {worker.id: worker.name for worker in client.workers()}
    except NotAllowed:
        return {}


def worker(worker_id: str | None, names: Mapping[str, str]) -> str | None:
    """A worker by its name if that is known, and its id."""
    name = names.get(worker_id or "")
    return f"{name} ({worker_id})" if name else worker_id


def rendered(text: str, names: Mapping[str, str], when: Callable[[datetime], str] = when) -> str:
    """A sentence with its times as `when` writes them, and with the names of the workers in it."""
    named = _ID.sub(lambda found: worker(found[0], names) or "", text)
    return _TIME.sub(lambda found: when(datetime.fromisoformat(found[0])), named)
