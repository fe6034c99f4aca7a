"""The account that runs the server. PostgreSQL does not run as root, so root needs another account."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal

from holdfast.domain.errors import ConfigurationError
from holdfast.embedded import launch
from holdfast.embedded.places import Places

# An id that distributions do not use: unlike the id of `nobody`, it is not shared with other programs.
SERVER_UID = 60832


@dataclass(frozen=True)
class Identity:
    """The identity of a launched program: another user (`drop`), or one of the methods in `launch`."""

    kind: Literal["drop", "override", "namespace"]
    uid: int
    gid: int


@dataclass(frozen=True)
class Account:
    """The owner of the files, and the identities of initdb and the server; None means the current user."""

    uid: int
    gid: int
    server: Identity | None = None
    initdb: Identity | None = None

    @property
    def maker(self) -> tuple[int, int]:
        """The owner that initdb requires for its directory."""
        if self.initdb is None or self.initdb.kind == "namespace":
            return self.uid, self.gid
        return self.initdb.uid, self.initdb.gid


def run(
    identity: Identity | None,
    command: Sequence[str | Path],
    *,
    output: IO[str] | int,
    detach: bool = False,
    keep: Sequence[int] = (),
) -> int:
    """Run the command under the identity; with `detach`, in a separate session that outlives this process."""
    words = [str(word) for word in command]
    # The client's PG* variables do not apply to the server, and its messages must be in English.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
    environment["LC_ALL"] = "C"
    options: dict[str, Any] = {}
    if identity is not None and identity.kind == "drop":
        options = {"user": identity.uid, "group": identity.gid, "extra_groups": []}
    elif identity is not None:
        way = [identity.kind, str(identity.uid), str(identity.gid)]
        words = [sys.executable, "-I", "-S", launch.__file__, *way, *words]
    if detach:
        # The shell exits immediately and leaves the server to init, so that no process has to reap it.
        words = ["/bin/sh", "-c", '"$@" &', "sh", *words]
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        cwd="/",
        env=environment,
        umask=0o077,
        start_new_session=True,
        pass_fds=tuple(keep),
        **options,
    )
    with process:
        try:
            return process.wait()
        except BaseException:  # a signal is stopping this process: stop the child first
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            raise


def choose(places: Places, binaries: Path) -> Account:
    """Return the first account under which the server's programs start on this machine."""
    if os.geteuid() != 0:
        return _ordinary(binaries)
    owner = _owner(places)
    tried = []
    for account in _for_root(places, *owner):
        if works(account.server, binaries) and works(account.initdb, binaries):
            return account
        tried.append(account.server.kind if account.server else "self")
    raise ConfigurationError(
        f"PostgreSQL does not run as root and no other account could be used (tried: {', '.join(tried)}). "
        "Run as an ordinary user, or set HOLDFAST_DATABASE_URL."
    )


def works(identity: Identity | None, binaries: Path) -> bool:
    if identity is None:
        return True
    try:
        return run(identity, [binaries / "postgres", "--version"], output=subprocess.DEVNULL) == 0
    except (OSError, subprocess.SubprocessError):
        return False


def hand_over(path: Path, uid: int, gid: int) -> None:
    """Change the owner of a directory tree. The top comes last: its owner shows that everything below is done."""
    if path.stat().st_uid == uid:
        return
    for directory, folders, files in os.walk(path, topdown=False):
        for name in [*folders, *files]:
            os.chown(Path(directory, name), uid, gid, follow_symlinks=False)
    os.chown(path, uid, gid)


def reachable(path: Path, uid: int, gid: int) -> bool:
    """Whether the user may enter every directory down to and including `path`."""
    return all(_enterable(directory.stat(), uid, gid) for directory in (path, *path.parents))


def _enterable(found: os.stat_result, uid: int, gid: int) -> bool:
    if found.st_uid == uid:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid == gid:
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)


def _ordinary(binaries: Path) -> Account:
    uid, gid = os.geteuid(), os.getegid()
    if _has_name(uid):
        return Account(uid, gid)
    # initdb, unlike the server, insists on a name for its user id; containers often run ids without one.
    other = _other_user()
    account = Account(uid, gid, initdb=Identity("namespace", other.pw_uid, other.pw_gid))
    if not works(account.initdb, binaries):
        raise ConfigurationError(
            f"user id {uid} has no name, which PostgreSQL's initdb needs. "
            "Add the user to /etc/passwd, or set HOLDFAST_DATABASE_URL."
        )
    return account


def _for_root(places: Places, uid: int, gid: int) -> list[Account]:
    other = _other_user()
    dropped = Identity("drop", uid, gid)
    makes = dropped if _has_name(uid) else Identity("drop", other.pw_uid, other.pw_gid)
    plain = Account(uid, gid, dropped, makes)
    inside = Identity("namespace", other.pw_uid, other.pw_gid)
    accounts = [
        Account(0, 0, inside, inside),
        Account(uid, gid, replace(dropped, kind="override"), replace(makes, kind="override")),
    ]
    if reachable(places.home, uid, gid) and reachable(places.home, makes.uid, makes.gid):
        accounts.insert(0, plain)
    return accounts


def _owner(places: Places) -> tuple[int, int]:
    """Use another user's home as that user, so that the files remain theirs."""
    for path in (places.data, places.home):
        if path.exists() and path.stat().st_uid != 0:
            return path.stat().st_uid, path.stat().st_gid
    return SERVER_UID, SERVER_UID


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _other_user() -> pwd.struct_passwd:
    entries = [entry for entry in pwd.getpwall() if entry.pw_uid != 0]
    named = [entry for entry in entries if entry.pw_name == "nobody"]
    for entry in [*named, *entries]:
        return entry
    raise ConfigurationError(
        "this system has no user but root, and PostgreSQL's initdb needs one. "
        "Add a user to /etc/passwd, or set HOLDFAST_DATABASE_URL."
    )
