"""How the demo is presented."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from holdfast.domain.records import EventRecord
    from holdfast.verbs.handles import RunFields


class Narrator(Protocol):
    """Presents what happens, and counts the checks."""

    def scene(self, number: int, title: str, about: str) -> None:
        """A new scene begins."""

    def say(self, text: str) -> None:
        """Something happened."""

    def progress(self, run: RunFields, name: str = "") -> None:
        """Show the progress of a run, by its name in this scene; called repeatedly."""

    def counted(self, done: int, total: int, unit: str) -> None:
        """Show how many of something are done; called repeatedly."""

    def check(self, holds: bool, text: str) -> None:
        """Show a statement that must be true, and whether it is."""

    def events(self, events: Sequence[EventRecord]) -> None:
        """Show what happened to a run, with times."""

    def end(self, gone: bool) -> None:
        """Show that everything was stopped, and whether nothing is left."""

    def all_passed(self) -> bool:
        """Whether every check so far has succeeded."""
