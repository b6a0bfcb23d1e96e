"""Runs the checks in order, one after another, so that each can be shown as it is done."""

from collections.abc import Callable, Iterator

from reaper.errors import ReaperError, StoreError
from reaper.operations.diagnosis import broker, database, handlers, reaping, settings
from reaper.operations.diagnosis.findings import Finding, Severity, fail
from reaper.operations.diagnosis.scene import Scene

_DATABASE_CHECKS: tuple[Callable[[Scene], Finding], ...] = (
    database.check_writable,
    database.check_workflow_steps,
    database.check_rights,
    database.check_lease_index,
    database.check_ledger_indexes,
    database.check_clock,
    reaping.check_tick,
    reaping.check_oldest_lease,
    reaping.check_deferred,
    reaping.check_released_unstarted,
    reaping.check_anomalies,
    settings.check_interval,
)

_BOTH_CHECKS: tuple[Callable[[Scene], Finding], ...] = (
    settings.check_limits,
    handlers.check_dying_types,
    handlers.check_handlers,
)


def diagnose(scene: Scene) -> Iterator[Finding]:
    """Yield what each check found. Changes nothing; never raises for what a check finds.

    1. The database and its schema; where they fail, what reads them is left out.
    2. All that only needs the database.
    3. The broker and who listens on it; where it is away, what asks it is left out.
    4. What needs both.
    """
    reachable = database.check_reachable(scene)
    yield reachable
    is_readable = reachable.severity is Severity.OK
    if is_readable:
        migrated = database.check_schema(scene)
        yield migrated
        is_readable = migrated.severity is Severity.OK
    ticks_are_fresh = False
    if is_readable:
        for check in _DATABASE_CHECKS:
            finding = _made(check, scene)
            if finding.id == "tick":
                ticks_are_fresh = finding.severity is Severity.OK
            yield finding
    yield from _ask_broker(scene, ticks_are_fresh=ticks_are_fresh)
    if is_readable:
        for check in _BOTH_CHECKS:
            yield _made(check, scene)


def _ask_broker(scene: Scene, *, ticks_are_fresh: bool) -> Iterator[Finding]:
    view = scene.look()
    yield broker.check_broker(view)
    if isinstance(view, ReaperError):
        return
    yield broker.check_beat(view, ticks_are_fresh=ticks_are_fresh)
    yield broker.check_reap_consumers(view)
    yield broker.check_hook_consumers(view)
    yield broker.check_hook_pool(view)
    yield broker.check_eviction(view)
    yield broker.check_persistence(view)
    yield broker.check_key_prefix(view)


def _made(check: Callable[[Scene], Finding], scene: Scene) -> Finding:
    """What the check found; a check that PostgreSQL refuses is a finding too."""
    try:
        return check(scene)
    except StoreError as error:
        name = check.__name__.removeprefix("check_").replace("_", "-")
        return fail(name, str(error), "mend what the sentence names, then ask again")
