"""The demo: the main job end to end, on a Postgres and with workers of its own, which all go when it is over.

stage       the directory, the server, the workers
scenes      what is shown, and the promises that have to hold
narrator    how it is told; the command line brings one
"""

from __future__ import annotations

from pathlib import Path

from holdfast.demo.narrator import Narrator
from holdfast.demo.scenes import SCENES
from holdfast.demo.stage import Stage

__all__ = ["Narrator", "play"]


def play(narrator: Narrator, under: Path) -> bool:
    """Show every scene in a directory made under `under` and removed again; True if every promise held."""
    with Stage(narrator, under) as stage:
        for number, scene in enumerate(SCENES, start=1):
            narrator.scene(number, *_titled(scene.__doc__ or ""))
            scene(stage)
    narrator.end(stage.is_gone())
    return narrator.kept()


def _titled(text: str) -> tuple[str, str]:
    title, _, about = text.strip().partition("\n")
    return title.rstrip("."), " ".join(about.split())
