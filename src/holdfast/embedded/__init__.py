"""The embedded PostgreSQL: a real server from a wheel, used if no database is configured.

    with ensure_running(Path(".holdfast")) as server:
        psycopg.connect(server.url)

The first process that needs the server starts it, others attach, and the last one stops it. There is no counter: three
lock files next to the data directory show who uses the server, and the kernel releases a lock when its holder dies.

    start.lock    held while a process joins, leaves, starts or stops the server
    users.lock    shared by every process that uses the server; a process that gets it exclusively is the last one
    server.lock   inherited by the server and all its processes: while it is held, one of them is alive

So a stale postmaster.pid, or a process id that has been reused, does no harm, and a server whose users were all killed
is found and used by the next process.
"""

from holdfast.embedded.server import Server, ensure_running, stop_if_unused

__all__ = ["Server", "ensure_running", "stop_if_unused"]
