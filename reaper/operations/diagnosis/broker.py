"""Checks of the broker and of who listens on it: judgements on a view, no I/O of their own."""

from reaper.config import MAX_HOOK_CONCURRENCY
from reaper.errors import ReaperError
from reaper.operations.diagnosis.findings import Finding, fail, listed, ok, warn
from reaper.operations.facts import BrokerView, WorkerSeen

NO_EVICTION = "noeviction"
START_REAPING = "start `celery -A reaper worker -Q reaper -c 1`"
START_HOOKS = "start `celery -A reaper worker -Q terminal-hooks`"


def check_broker(view: BrokerView | ReaperError) -> Finding:
    """The broker answers."""
    if isinstance(view, ReaperError):
        return fail(
            "broker",
            f"{view}; the checks that ask it were left out",
            "start the broker, or correct REAPER_BROKER_URL; nothing is lost meanwhile",
        )
    waiting = ", ".join(f"{n} in {queue}" for queue, n in view.queues.items())
    return ok("broker", f"the broker answers; messages that wait: {waiting}")


def check_beat(view: BrokerView, *, ticks_are_fresh: bool) -> Finding:
    """A beat answers."""
    if view.beats:
        return ok("beat", f"alive: {listed(view.beats)}")
    found = "no beat answers" + _silent(view)
    cure = "start `celery -A reaper beat`"
    if ticks_are_fresh:
        return warn("beat", f"{found}, yet ticks are fresh: is `reaper reap` run by cron?", cure)
    return fail("beat", found, cure)


def check_reap_consumers(view: BrokerView) -> Finding:
    """Somebody reaps, and not behind hooks that hang."""
    workers = _consumers(view, "reaper")
    if not workers:
        found = "nobody consumes queue `reaper`: nothing is reaped" + _silent(view)
        return fail("reap-consumers", found, START_REAPING)
    if all("terminal-hooks" in (w.queues or ()) for w in workers):
        return warn(
            "reap-consumers",
            "every worker that reaps also runs hooks: eight hanging hooks hold up the reap",
            START_REAPING,
        )
    return ok("reap-consumers", f"reaping: {listed(w.name for w in workers)}")


def check_hook_consumers(view: BrokerView) -> Finding:
    """Somebody runs hooks."""
    workers = _consumers(view, "terminal-hooks")
    if not workers:
        found = "nobody consumes queue `terminal-hooks`: notices wait in the ledger"
        return fail("hook-consumers", found + _silent(view), START_HOOKS)
    return ok("hook-consumers", f"running hooks: {listed(w.name for w in workers)}")


def check_hook_pool(view: BrokerView) -> Finding:
    """Hooks run in prefork pools of at most eight."""
    for worker in _consumers(view, "terminal-hooks"):
        if worker.pool not in {None, "prefork"}:
            return fail(
                "hook-pool",
                f"{worker.name} runs hooks on pool {worker.pool}: only prefork keeps their limits",
                f"stop it; {START_HOOKS}",
            )
        if (worker.processes or 0) > MAX_HOOK_CONCURRENCY:
            return fail(
                "hook-pool",
                f"{worker.name} runs {worker.processes} hooks at once, more than "
                f"{MAX_HOOK_CONCURRENCY}: it is no worker of reaper's",
                f"stop it; {START_HOOKS}",
            )
    return ok("hook-pool", f"hooks run on prefork, at most {MAX_HOOK_CONCURRENCY} in a worker")


def check_eviction(view: BrokerView) -> Finding:
    """Redis drops no messages when it is full."""
    if view.redis is None:
        return ok("eviction-policy", "the broker is not Redis")
    policy = view.redis.eviction_policy
    if policy is None:
        return ok("eviction-policy", "this Redis does not say")
    if policy != NO_EVICTION:
        return warn(
            "eviction-policy",
            f"Redis evicts keys when it is full (maxmemory-policy {policy}): messages may vanish; "
            "the ledger rings again, late",
            f"set maxmemory-policy {NO_EVICTION}",
        )
    return ok("eviction-policy", f"maxmemory-policy is {NO_EVICTION}")


def check_persistence(view: BrokerView) -> Finding:
    """For information: reaper does not need a Redis that keeps its data."""
    if view.redis is None or view.redis.keeps_data is None:
        return ok("persistence", "the broker does not say whether it keeps its data")
    if view.redis.keeps_data:
        return ok("persistence", "Redis keeps its data; reaper does not need that")
    return ok(
        "persistence",
        "Redis keeps nothing over a restart: that costs nothing here, messages are only doorbells, "
        "and the ledger rings again",
    )


def check_key_prefix(view: BrokerView) -> Finding:
    """Reaper's keys are told from those of others in one Redis database."""
    if view.redis is None:
        return ok("key-prefix", "the broker is not Redis")
    if view.redis.key_prefix:
        return ok("key-prefix", f"reaper's keys begin with {view.redis.key_prefix!r}")
    if view.redis.strangers:
        return fail(
            "key-prefix",
            "reaper's keys have no prefix, and others use this Redis database (keys "
            f"{listed(map(repr, view.redis.strangers))}): Celery applications would run each "
            "other's unacknowledged tasks twice",
            "take global_keyprefix='' out of celeryconfig.py, or give reaper a Redis database of "
            "its own",
        )
    return ok("key-prefix", "no key prefix, and nobody else in this Redis database")


def _consumers(view: BrokerView, queue: str) -> list[WorkerSeen]:
    return [worker for worker in view.workers if queue in (worker.queues or ())]


def _silent(view: BrokerView) -> str:
    return f" (listened once, does not answer: {listed(view.missing)})" if view.missing else ""
