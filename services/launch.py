"""Become another program, as another user, that ends when the parent process ends.

``python -I -S launch.py <signal> <user> <parent> <program> <argument>…`` changes to the user (``-`` for none), asks the
kernel (Linux) for the signal at the death of the parent (``0`` for none), and replaces itself by the program. A process
of its own does this because ``subprocess`` copies all of its caller before it runs ``preexec_fn`` or changes user, and
the kernel refuses that copy to a caller with more memory than the machine.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["make_command"]

_PR_SET_PDEATHSIG = 1
_NOBODY = "-"


def make_command(command: Sequence[str | Path], *, user: str | None = None, orphan_signal: int = 0) -> list[str]:
    """Return the command that starts ``command`` by this module."""
    words = [str(orphan_signal), user or _NOBODY, str(os.getpid()), *map(str, command)]
    return [sys.executable, "-I", "-S", __file__, *words]


def main(orphan_signal: str, user: str, parent: str, *command: str) -> None:
    """Change to the user, ask for the signal, and run the command in place of this process."""
    if user != _NOBODY:
        account = pwd.getpwnam(user)
        os.setgroups([])
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
    # after the change of user, which would undo it
    if int(orphan_signal) and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(orphan_signal))
        if os.getppid() != int(parent):
            sys.exit(1)
    # Python ignores these, and the program would inherit that
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main(*sys.argv[1:])
