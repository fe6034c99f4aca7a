"""Doorbells: hints that there is work. They shorten the wait, may be lost, and are never the truth.

    poll     no hints: workers look by themselves
    listen   LISTEN and NOTIFY, coalesced, and never inside the transaction that writes
    redis    the same hints on a channel of Redis
    rq       those, and a message for each run that a worker of RQ may take

A hint may be lost, doubled or late. Workers look by themselves anyway; only the pause between two looks depends on
whether they can hear.
"""

from holdfast.doorbells.bell import Bell, open_bell

__all__ = ["Bell", "open_bell"]
