"""Starts a program that ends with this process, even on SIGKILL. Must not know which program.

On Linux only: elsewhere a program outlives a parent that had no chance to end it.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

SAME_OWNER = (-1, -1)
"""User and group that mean this process's own."""

_LAUNCHER = """
import os, sys
try:
    import ctypes
    prctl = ctypes.CDLL(None).prctl
except (ImportError, AttributeError, OSError):
    prctl = lambda *_: None
parent, death_signal, uid, gid = map(int, sys.argv[1:5])
if uid >= 0:
    os.setgroups([]); os.setgid(gid); os.setuid(uid)
prctl(1, death_signal, 0, 0, 0)
if os.getppid() == parent:
    os.execv(sys.argv[5], sys.argv[5:])
"""
"""Runs in the child: import what another user may not read, become that user, then
PR_SET_PDEATHSIG (which a change of user would clear), then the program. No `preexec_fn`: it is
unsafe, and a warning, beside threads."""


def launch(
    command: Sequence[str],
    output: int,
    *,
    death_signal: signal.Signals = signal.SIGKILL,
    owner: tuple[int, int] = SAME_OWNER,
    **options: Any,
) -> subprocess.Popen[bytes]:
    """Start `command` in a session of its own, without our input; return its process.

    It gets `death_signal` when the thread that started it ends, and does not start at all where
    that has ended before.

    Args:
        command: an absolute path first.
        output: the descriptor of both its outputs.
        death_signal: what ends it with this process.
        owner: user and group to run as; only root may name others.
        options: `cwd`, `env` and `umask` as `subprocess.Popen` takes them.
    """
    numbers = [str(int(n)) for n in (os.getpid(), death_signal, *owner)]
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _LAUNCHER, *numbers, *command],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        **options,
    )
