"""How the demo is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from holdfast.domain.records import EventRecord
    from holdfast.verbs.handles import RunFields


class Narrator(Protocol):
    """Tells what happens, and keeps count of the promises."""

    def scene(self, number: int, title: str, about: str) -> None:
        """A new scene begins."""

    def say(self, text: str) -> None:
        """Something happened."""

    def progress(self, run: RunFields, name: str = "") -> None:
        """How a run gets on, by the name it has in this scene; told again and again."""

    def counted(self, done: int, total: int, unit: str) -> None:
        """How many of something are done; told again and again."""

    def promise(self, holds: bool, text: str) -> None:
        """Something that has to be true, and whether it is."""

    def events(self, events: Sequence[EventRecord]) -> None:
        """What happened to a run, with times."""

    def end(self, gone: bool) -> None:
        """Everything was taken down, and whether nothing of it is left."""

    def kept(self) -> bool:
        """Whether every promise so far held."""
