"""The server's settings: full durability, many short transactions on small hot tables, and modest memory.

ALTER SYSTEM still overrides them, as it does on any server.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from holdfast.embedded.places import PORT

MIB = 1024 * 1024


def configuration(sockets: Path, *, durable: bool) -> str:
    memory = available_memory()
    shared_memory = "posix" if sys.platform != "linux" or os.access("/dev/shm", os.W_OK) else "mmap"  # noqa: S108
    settings = {
        # Reachable through a socket in a private directory, never over a network.
        "listen_addresses": "",
        "port": PORT,
        "unix_socket_directories": sockets,
        "unix_socket_permissions": "0700",
        "max_connections": 200,
        "shared_buffers": f"{max(32 * MIB, min(memory // 8, 512 * MIB)) // MIB}MB",
        "effective_cache_size": f"{max(memory // 2, 64 * MIB) // MIB}MB",
        "work_mem": "8MB",
        "maintenance_work_mem": "64MB",
        "dynamic_shared_memory_type": shared_memory,
        "huge_pages": "off",
        # A commit is acknowledged only once it is on disk.
        "fsync": on(durable),
        "synchronous_commit": "on",
        "full_page_writes": on(durable),
        # There are no replicas, so the WAL contains only what recovery needs.
        "wal_level": "minimal",
        "max_wal_senders": 0,
        "max_logical_replication_workers": 0,
        "wal_compression": "pglz",
        "min_wal_size": "80MB",
        "max_wal_size": "1GB",
        "checkpoint_timeout": "15min",
        # Rows of ready and leased runs exist for seconds: vacuum early, often and without pauses.
        "autovacuum_naptime": "5s",
        "autovacuum_vacuum_threshold": 200,
        "autovacuum_vacuum_scale_factor": 0.05,
        "autovacuum_analyze_threshold": 500,
        "autovacuum_analyze_scale_factor": 0.05,
        "autovacuum_vacuum_cost_delay": 0,
        # Short statements only lose time with these.
        "jit": "off",
        "max_parallel_workers_per_gather": 0,
        "io_method": "sync",
        "max_locks_per_transaction": 128,
        "timezone": "UTC",
        "log_timezone": "UTC",
        "lc_messages": "C",
        # One file for each hour of the day, overwritten a day later.
        "logging_collector": "on",
        "log_directory": "log",
        "log_filename": "postgres-%H.log",
        "log_rotation_age": "1h",
        "log_rotation_size": 0,
        "log_truncate_on_rotation": "on",
        "log_line_prefix": "%m [%p] ",
        "log_min_messages": "warning",
        "log_min_error_statement": "panic",
        "log_checkpoints": "off",
    }
    return "".join(f"{name} = '{value}'\n" for name, value in settings.items())


# Only the server's owner and root can enter the socket's directory.
ADMISSION = "local all all trust\n"


def on(value: bool) -> str:
    return "on" if value else "off"


def available_memory() -> int:
    """Return the memory of the machine or the limit of the container."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")]
    texts = [limit.read_text().strip() for limit in limits if limit.is_file()]
    return min([machine, *(int(text) for text in texts if text.isdigit())])
