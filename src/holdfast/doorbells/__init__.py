"""Doorbells: hints that there is work. They only shorten the time until a run starts.

    poll     no hints: workers poll
    listen   LISTEN and NOTIFY, coalesced, and never inside the transaction that writes
    redis    the same hints on a Redis channel
    rq       the same hints, and a message for each run that an RQ worker may execute

A hint may be lost, duplicated or late. Workers poll in any case; only the poll interval depends on whether hints can
reach them.
"""
