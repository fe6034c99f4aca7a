"""Doorbells: hints that there is work. They shorten the wait, may be lost, and are never the truth."""

from holdfast.doorbells.bell import Bell, open_bell

__all__ = ["Bell", "open_bell"]
