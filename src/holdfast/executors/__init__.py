"""Executors run user code and know nothing of SQL.

    inline    tiny and asynchronous tasks, in threads of the worker itself; they cannot be killed
    process   everything else, in child processes that are killed on timeout, on cancel, and with their worker

Both turn whatever happens into an outcome: an executor never raises on account of a task.
"""
