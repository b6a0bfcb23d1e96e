"""Handlers that do what handlers must not do: they hang, hide from signals, and die."""

import asyncio
import ctypes
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from celery.exceptions import SoftTimeLimitExceeded

from reaper import JobContext, JobDeadLetterInfo, on_dead_letter
from tests.harness.handlers import effect

HANG_SECONDS = 300
"""Far beyond every limit of the tests."""


class Unruly(BaseException):
    """No Exception at all."""


@on_dead_letter("regex")
def regex(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    effect(context, f"begin {os.getpid()}")
    re.match(r"(a|a)*$", "a" * 64 + "b")


@on_dead_letter("asynchronous")
async def asynchronous(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    effect(context, f"begin {os.getpid()}")
    await asyncio.sleep(HANG_SECONDS)


@on_dead_letter("starts_process")
def starts_process(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    effect(context, f"begin {os.getpid()}")
    subprocess.run(["sleep", str(HANG_SECONDS + os.getpid())], check=False)


@on_dead_letter("deadlocks")
def deadlocks(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    """Lock a C mutex twice: no signal handler of Python ever runs again."""
    effect(context, f"begin {os.getpid()}")
    libc = ctypes.CDLL(None)
    mutex = ctypes.create_string_buffer(128)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


@on_dead_letter("ignores_signals")
def ignores_signals(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    effect(context, f"begin {os.getpid()}")
    time.sleep(HANG_SECONDS)


@on_dead_letter("blocks_signals")
def blocks_signals(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    effect(context, f"begin {os.getpid()}")
    time.sleep(HANG_SECONDS)


@on_dead_letter("swallows_limit")
def swallows_limit(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    effect(context, f"begin {os.getpid()}")
    try:
        time.sleep(HANG_SECONDS)
    except SoftTimeLimitExceeded:
        time.sleep(HANG_SECONDS)


@on_dead_letter("spoils_signals")
def spoils_signals(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    """Change everything the limits are made of, and return."""
    effect(context, f"begin {os.getpid()}")
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGALRM, signal.SIGTERM})
    signal.setitimer(signal.ITIMER_REAL, 0.2)


@on_dead_letter("leaves_thread")
def leaves_thread(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    """Leave a thread behind that is no daemon and never ends."""
    effect(context, f"begin {os.getpid()}")
    threading.Thread(target=time.sleep, args=(HANG_SECONDS,)).start()


@on_dead_letter("interrupts")
def interrupts(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    raise KeyboardInterrupt


@on_dead_letter("generator_exits")
def generator_exits(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    raise GeneratorExit


@on_dead_letter("base_exception")
def base_exception(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    raise Unruly("as planned")


@on_dead_letter("os_exits")
def os_exits(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    effect(context, f"begin {os.getpid()}")
    os._exit(0)


@on_dead_letter("says_pid")
def says_pid(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    effect(context, f"begin {os.getpid()}")


@on_dead_letter("hangs")
def hangs(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    effect(context, f"begin {os.getpid()}")
    time.sleep(HANG_SECONDS)


@on_dead_letter("once_hangs")
def once_hangs(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    """Hang until a file is there, else end at once: what a restart finds repaired."""
    effect(context, "begin")
    if not Path(payload["flag"]).exists():
        time.sleep(HANG_SECONDS)
    effect(context, "end")


@on_dead_letter("together")
def together(context: JobContext, payload: Any, dead_letter: JobDeadLetterInfo) -> None:
    """Hold a slot for a moment."""
    effect(context, "begin")
    time.sleep(payload["seconds"])
    effect(context, "end")
