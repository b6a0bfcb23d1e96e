"""Checks of handlers against what dies: told by the ledger and by the hook workers themselves."""

from reaper.operations.diagnosis.findings import Finding, listed, ok, warn
from reaper.operations.diagnosis.scene import Scene
from reaper.operations.facts import BrokerView
from reaper.registry import ANY_TYPE
from reaper.store import dead_letters, overview


def check_dying_types(scene: Scene) -> Finding:
    """Every type that dies has a handler."""
    unhandled = sorted(
        row.job_type
        for row in overview.count_hooks_by_type(scene.database)
        if row.state == "unhandled"
    )
    dying = [row.job_type for row in overview.count_recent_dead_letters(scene.database)]
    handled = _on_every_worker(scene.look())
    ahead = [t for t in dying if handled is not None and not {t, ANY_TYPE} & handled]
    types = sorted({*unhandled, *ahead})
    if not types:
        return ok("dying-types", "every type that died has a handler")
    return warn(
        "dying-types",
        f"types die without a handler: {listed(map(repr, types), 6)}",
        "deploy a handler (or one for '*'), then `reaper hooks retry --state unhandled --type "
        "<type>`",
    )


def check_handlers(scene: Scene) -> Finding:
    """Every handler is for a job type there is, and the hook workers agree."""
    view = scene.look()
    told = _told(view)
    if not told:
        return ok("handlers", "no hook worker told its handlers")
    known = {ANY_TYPE, *dead_letters.list_job_types(scene.database)}
    strange = sorted(set().union(*told) - known)
    if strange:
        return warn(
            "handlers",
            f"handlers are registered for no known job type: {listed(map(repr, strange), 6)}",
            "correct the type's name in @on_dead_letter, or define the type",
        )
    if len(set(told)) > 1:
        return warn(
            "handlers",
            "the hook workers do not all have the same handlers: a notice may meet one without",
            "give every hook worker the same REAPER_HANDLERS and the same release",
        )
    return ok("handlers", f"handlers for {listed(sorted(told[0]), 6) or 'no type'}")


def _told(view: object) -> list[frozenset[str]]:
    if not isinstance(view, BrokerView):
        return []
    return [frozenset(w.handlers) for w in view.workers if w.handlers is not None]


def _on_every_worker(view: object) -> frozenset[str] | None:
    """Types that every hook worker has a handler for; None where none told."""
    told = _told(view)
    return frozenset.intersection(*told) if told else None
