"""Checks of the settings against each other and against the leases: judgements, little I/O."""

from reaper.operations.diagnosis.findings import Finding, fail, ok, warn
from reaper.operations.diagnosis.scene import Scene
from reaper.operations.facts import BrokerView
from reaper.store import inspection

LEASES_LOOKED_AT = 10_000

VISIBILITY_MAX_SECONDS = 3_600
"""The broker's own net must catch within an hour, else an unacknowledged message waits for ever."""


def check_interval(scene: Scene) -> Finding:
    """The reaper looks at least as often as leases are long."""
    interval = scene.settings.interval_seconds
    shortest = inspection.find_shortest_lease(scene.database, row_limit=LEASES_LOOKED_AT)
    if shortest is not None and shortest[1] < interval:
        job_type, seconds = shortest
        return warn(
            "interval",
            f"REAPER_INTERVAL_SECONDS={interval:g} is longer than a lease of type {job_type!r} "
            f"({seconds:.1f} s): a lost job waits longer for the reaper than for its lease",
            "set a shorter interval, or lease for longer",
        )
    return ok("interval", f"one reap every {interval:g} s")


def check_limits(scene: Scene) -> Finding:
    """The limits of hooks fit into the drain window and the broker's visibility timeout."""
    settings = scene.settings
    lease, window = settings.hook_lease_seconds, settings.drain_window_seconds
    view = scene.look()
    visible = view.visibility_timeout if isinstance(view, BrokerView) else None
    if visible is not None and visible <= lease + window:
        return fail(
            "limits",
            f"the broker's visibility_timeout ({visible:g} s) is not above hook and drain "
            f"({lease + window:g} s): messages come back while their hooks run",
            "take visibility_timeout out of broker_transport_options in celeryconfig.py",
        )
    if visible is not None and visible > VISIBILITY_MAX_SECONDS:
        return warn(
            "limits",
            f"the broker's visibility_timeout ({visible:g} s) is above an hour",
            "take it out of celeryconfig.py, or set shorter hook limits",
        )
    if window < lease:
        return warn(
            "limits",
            f"the drain window ({window:g} s) is shorter than a hook may take ({lease:g} s): a "
            "shutdown cuts hooks off, and they run again",
            "take REAPER_DRAIN_SECONDS out, if that is not what you want",
        )
    return ok("limits", f"hooks end within {lease:g} s, a shutdown waits {window:g} s")
