"""Names of holders of leases, which tell other processes of the same machine whether a holder has ended.

A name is a UUID (version 8): 48 bits of a hash of the machine, 32 of the process id, 16 of a hash of its start, and 26
random ones. Only the machine itself can tell anything from it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import uuid
from pathlib import Path

_VERSION = 8
_PID, _START, _RANDOM = 32, 16, 26


def new_holder() -> str:
    """Return a new name for this process."""
    process = os.getpid()
    bits = _machine() << _PID | process % (1 << _PID)
    bits = bits << _START | _hash(_start_of(process) or "", _START)
    bits = bits << _RANDOM | secrets.randbits(_RANDOM)
    number = bits >> 74 << 80 | _VERSION << 76 | (bits >> 62 & 0xFFF) << 64 | 2 << 62 | bits & (1 << 62) - 1
    return str(uuid.UUID(int=number))


def has_ended(holder: str) -> bool:
    """Return True when a holder was a process of this machine that has ended; False if that is not known.

    >>> has_ended(new_holder()), has_ended(str(uuid.uuid4()))
    (False, False)
    """
    name = uuid.UUID(holder)
    if name.version != _VERSION or os.name != "posix":
        return False
    number = name.int
    bits = number >> 80 << 74 | (number >> 64 & 0xFFF) << 62 | number & (1 << 62) - 1
    start = bits >> _RANDOM & (1 << _START) - 1
    process = bits >> _RANDOM + _START & (1 << _PID) - 1
    if bits >> _RANDOM + _START + _PID != _machine():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # it belongs to another user
    return _hash(_start_of(process) or "", _START) != start


def _machine() -> int:
    """Return a number for what has process ids of its own: a machine since its start, or a container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        boot, namespace = socket.gethostname(), uuid.getnode()
    return _hash(f"{boot}\n{namespace}", 48)


def _start_of(process: int) -> str | None:
    """Return when a process was started, in ticks since the start of the machine; None if that is not known."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None
    state, *facts = text.rpartition(")")[2].split()
    return None if state in "ZX" else facts[18]


def _hash(text: str, bits: int) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()) >> 256 - bits
