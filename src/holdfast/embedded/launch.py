"""Run a command with another user id than root's, where simply becoming another user is not enough.

    python -I -S launch.py namespace 65534 65534 command ...

A script of its own, because a program with threads must not do this to itself. The ways:

- `namespace`: enter a user namespace in which our own id reads as another one. Outside of it nothing changes, so the
  files stay ours and a directory that only we may enter stays open to us.
- `override`: become another user but keep the right to pass file permissions (CAP_DAC_OVERRIDE). For containers, which
  forbid namespaces but leave that right to root.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Any

CLONE_NEWUSER = 0x10000000
PR_SET_SECUREBITS, NO_SETUID_FIXUP = 28, 1 << 2
PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 47, 2
CAP_VERSION = 0x20080522
CAP_DAC_OVERRIDE = 1


def call(name: str, *arguments: Any) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def override(uid: int, gid: int) -> None:
    # Keeps the rights across the change of user, and lets access(2), by which initdb finds the server, heed them.
    call("prctl", PR_SET_SECUREBITS, NO_SETUID_FIXUP, 0, 0, 0)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    right = 1 << CAP_DAC_OVERRIDE
    header = (ctypes.c_uint32 * 2)(CAP_VERSION, 0)
    effective_permitted_inheritable = (ctypes.c_uint32 * 6)(right, right, right, 0, 0, 0)
    call("capset", header, effective_permitted_inheritable)
    call("prctl", PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_OVERRIDE, 0, 0)


def namespace(uid: int, gid: int) -> None:
    outside_uid, outside_gid = os.geteuid(), os.getegid()
    call("unshare", CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {outside_uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {outside_gid} 1")


WAYS = {"namespace": namespace, "override": override}


def main(way: str, uid: str, gid: str, *command: str) -> None:
    try:
        WAYS[way](int(uid), int(gid))
        os.execv(command[0], command)  # noqa: S606
    except OSError as error:
        sys.exit(f"cannot run {command[0]}: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
