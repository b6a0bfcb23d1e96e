"""Checks of the reap: does it happen, and what can it never get done by itself?"""

from reaper.operations.diagnosis.findings import Finding, fail, listed, ok, warn
from reaper.operations.diagnosis.scene import Scene
from reaper.operations.freshness import STALE_INTERVALS, stale_seconds, staleness
from reaper.store import inspection, overview

COUNT_LIMIT = 1_000
"""Anomalies are counted up to here: more of one kind makes no difference to what to do."""

RELEASES = 5
"""Releases in one run from which a job is said to be taken and dropped again and again."""

NEWEST_EVENTS = 1_000_000
"""How far back releases are looked for: about a second of reading, hours of a busy queue."""


def check_tick(scene: Scene) -> Finding:
    """A tick finished within three intervals."""
    tick = overview.read_tick(scene.database)
    stale = staleness(tick, scene.settings.interval_seconds)
    if stale:
        return fail(
            "tick",
            stale,
            "start `celery -A reaper beat` and `celery -A reaper worker -Q reaper -c 1`; "
            "`reaper reap` reaps once by hand",
        )
    return ok("tick", f"the last tick finished {tick.finished_seconds_ago or 0:.1f} s ago")


def check_oldest_lease(scene: Scene) -> Finding:
    """No expired lease has waited for three intervals."""
    leases = overview.count_leases(scene.database)
    limit = stale_seconds(scene.settings.interval_seconds)
    oldest = leases.oldest_expired_seconds
    if oldest is not None and oldest > limit:
        return fail(
            "oldest-lease",
            f"{leases.expired} leases have expired, the oldest {oldest:.0f} s ago, more than "
            f"{STALE_INTERVALS} intervals",
            "see check `tick`; if ticks are fresh, another session holds the rows locked: "
            "SELECT * FROM pg_stat_activity WHERE state = 'idle in transaction'",
        )
    return ok("oldest-lease", f"{leases.live} leases live, {leases.expired} expired")


def check_anomalies(scene: Scene) -> Finding:
    """No rows that a reap can never move, or that contradict themselves."""
    found = inspection.find_anomalies(scene.database, row_limit=COUNT_LIMIT)
    if not found:
        return ok("anomalies", "no rows that a reap could never move")
    text = "; ".join(
        f"{a.count}{'+' if a.count == COUNT_LIMIT else ''} {a.kind} (job {listed(a.examples)})"
        for a in found
    )
    cure = (
        "a lease ends only if lease_expires_at does: set it to now() on these rows once their "
        "worker is known to be gone, and mend what writes them; a dead-lettered row without its "
        "dead letter was written by something else than reaper"
    )
    stuck = any(a.kind.startswith("leased") for a in found)
    return fail("anomalies", text, cure) if stuck else warn("anomalies", text, cure)


def check_deferred(scene: Scene) -> Finding:
    """No poison rows are set aside."""
    rows = inspection.list_deferred(scene.database, row_limit=COUNT_LIMIT)
    if not rows:
        return ok("deferred", "no rows set aside")
    shown = listed(
        f"job {row.job_id} (SQLSTATE {row.sqlstate}, constraint {row.constraint or 'none'}, "
        f"{row.times} times)"
        for row in rows
    )
    return warn(
        "deferred",
        f"{len(rows)}{'+' if len(rows) == COUNT_LIMIT else ''} expired leases cannot be taken "
        f"back, their transition fails: {shown}",
        "find the trigger or constraint that refuses the row and mend it or the row; the next "
        "tick after its pause takes it back",
    )


def check_released_unstarted(scene: Scene) -> Finding:
    """No job is claimed and dropped before it starts, again and again."""
    rows = inspection.find_released_unstarted(
        scene.database, newest=NEWEST_EVENTS, releases=RELEASES, row_limit=COUNT_LIMIT
    )
    if not rows:
        return ok("released-unstarted", "no job is claimed and dropped again and again")
    shown = listed(
        f"job {row.job_id} ({row.job_type}, run {row.run_number}, {row.releases} times)"
        for row in rows
    )
    return warn(
        "released-unstarted",
        f"{len(rows)} jobs were released unstarted {RELEASES} times or more in one run: {shown}",
        "a release costs no attempt, so this goes on for ever: see why the workers that claim "
        "this type die or hang before they start",
    )
