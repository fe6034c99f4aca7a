"""The demo: the main use case end to end, with its own Postgres server and workers, which are removed afterwards.

stage       the directory, the server, the workers
scenes      what is shown, and what is checked
narrator    how it is presented; the command line provides one
"""

from __future__ import annotations

from pathlib import Path

from holdfast.demo.narrator import Narrator

__all__ = ["Narrator", "play"]


def play(narrator: Narrator, under: Path, executor: str = "process") -> bool:
    """Show every scene in a temporary directory under `under`. Return True if every check succeeded."""
    # Workers and their children import the demo's tasks, and with them this package.
    from holdfast.demo.scenes import SCENES
    from holdfast.demo.stage import Stage

    with Stage(narrator, under, executor) as stage:
        for number, scene in enumerate(SCENES, start=1):
            narrator.scene(number, *_titled(scene.__doc__ or ""))
            scene(stage)
    narrator.end(stage.is_gone())
    return narrator.all_passed()


def _titled(text: str) -> tuple[str, str]:
    title, _, about = text.strip().partition("\n")
    return title.rstrip("."), " ".join(about.split())
