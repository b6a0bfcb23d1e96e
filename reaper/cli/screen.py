"""What `reaper status` shows, as text: one block from the database, one from the broker."""

from collections.abc import Iterator, Sequence

from reaper.cli.text import age, printable, table
from reaper.errors import ReaperError
from reaper.operations.facts import BrokerView, WorkerSeen
from reaper.operations.freshness import staleness
from reaper.operations.overview import DatabaseOverview
from reaper.store.overview import HookCount

HOOK_COLUMNS = ("pending", "running", "failed", "timed_out", "unhandled")

ROWS = 15
"""Types per table: one screen; --json has all."""


def database_block(seen: DatabaseOverview, interval_seconds: float) -> str:
    """Return what the database says."""
    return "\n".join(_database_lines(seen, interval_seconds))


def broker_block(view: BrokerView | ReaperError) -> str:
    """Return what the broker and those who listen on it say."""
    if isinstance(view, ReaperError):
        return f"broker   {view}"
    queues = ", ".join(f"{name} {count}" for name, count in view.queues.items())
    lines = [f"queues   {queues} messages waiting"]
    lines += [f"beat     {printable(name)} alive" for name in view.beats] or ["beat     none alive"]
    lines += [f"worker   {_worker(w)}" for w in view.workers] or ["worker   none alive"]
    lines += [f"silent   {printable(name)} listened once, does not answer" for name in view.missing]
    return "\n".join(lines)


def hook_rows(hooks: list[HookCount]) -> dict[str, dict[str, int]]:
    """Return counts by job type and state, the types with the most open hooks first."""
    found: dict[str, dict[str, int]] = {}
    for row in hooks:
        counts = found.setdefault(row.job_type, dict.fromkeys(HOOK_COLUMNS, 0))
        counts[row.state] = row.count
    return dict(sorted(found.items(), key=lambda item: (-sum(item[1].values()), item[0])))


def _database_lines(seen: DatabaseOverview, interval_seconds: float) -> Iterator[str]:
    leases, tick = seen.leases, seen.tick
    oldest = f", the oldest for {age(leases.oldest_expired_seconds)}" if leases.expired else ""
    yield f"leases   {leases.live} live, {leases.expired} expired{oldest}"
    if leases.deferred:
        yield f"deferred {leases.deferred} poison rows set aside; see `reaper doctor`"
    yield (
        f"tick     {age(tick.finished_seconds_ago)} ago: {tick.released} released, {tick.retried} "
        f"retried, {tick.dead_lettered} dead-lettered, {tick.deferred} deferred, "
        f"{tick.skipped} skipped"
    )
    stale = staleness(tick, interval_seconds)
    if stale:
        yield f"STALE    {stale}"
    yield f"hooks    the oldest that may run is owed for {age(seen.oldest_pending_seconds)}"
    yield ""
    deaths = [(row.job_type, row.last_hour, row.last_day) for row in seen.dead_letters]
    yield _top(("dead letters of type", "last hour", "last day"), deaths)
    yield ""
    rows = [
        (
            job_type,
            *counts.values(),
            "throttled" if job_type in seen.throttled else "",
        )
        for job_type, counts in hook_rows(seen.hooks).items()
    ]
    yield _top(("hooks of type", *HOOK_COLUMNS, ""), rows)


def _top(headings: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> str:
    if not rows:
        return f"{headings[0]}: none"
    more = f"\n... and {len(rows) - ROWS} more types" if len(rows) > ROWS else ""
    return table(headings, rows[:ROWS]) + more


def _worker(worker: WorkerSeen) -> str:
    queues = "?" if worker.queues is None else ",".join(worker.queues) or "no queue"
    pool = f", {worker.pool} x {worker.processes}" if worker.pool else ""
    return printable(f"{worker.name} alive: {queues}{pool}")
