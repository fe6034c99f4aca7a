"""PostgreSQL in a box: a real server out of a wheel, for when no database is configured.

    with ensure_running(Path(".holdfast")) as server:
        psycopg.connect(server.url)

The first process that needs the server starts it, every further one attaches, the last to leave stops it. Nobody
counts: three lock files beside the data directory tell who is there, and the kernel lets go of a lock when its
holder dies, however it dies.

    start.lock    held while somebody joins, leaves, starts or stops
    users.lock    shared by every process that uses the server; whoever gets it alone is the last one
    server.lock   inherited by the server and all its processes: while it is held, something of it is alive

So a stale postmaster.pid or a process id that now belongs to another program can mislead no one, and a server
whose users were all killed is found and used again by the next one who comes.
"""

from holdfast.embedded.server import Server, ensure_running, stop_if_unused

__all__ = ["Server", "ensure_running", "stop_if_unused"]
