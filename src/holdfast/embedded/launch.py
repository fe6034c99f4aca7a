"""Run a command with a user id other than root's, where switching to another user is not enough.

    python -I -S launch.py namespace 65534 65534 command ...

This is a separate script because a program with threads must not do this to itself. The methods:

- `namespace`: enter a user namespace in which the current id appears as another one. Nothing changes outside it, so the
  files keep their owner, and private directories remain accessible.
- `override`: switch to another user but keep the capability to bypass file permissions (CAP_DAC_OVERRIDE). This is for
  containers, which forbid namespaces but leave that capability to root.
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
    # Keep the capabilities across the change of user, also for access(2), which initdb uses to find the server.
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
