"""Compares what was found in the database with the plan, and sums it up."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from reaper.demo.outcomes import JobOutcome
from reaper.demo.scenario import ROLES, Role
from reaper.jobs import HookState

_COUNTED_HOOKS = ("completed", "failed", "timed_out", "pending", "running")


def find_differences(outcomes: Sequence[JobOutcome]) -> dict[str, str]:
    """Return what differs from the plan, a sentence by job type. Empty: all went as planned."""
    by_type: dict[str, list[JobOutcome]] = {role.job_type: [] for role in ROLES}
    for outcome in outcomes:
        by_type.setdefault(outcome.job_type, []).append(outcome)
    roles = {role.job_type: role for role in ROLES}
    said = {t: _differences(roles.get(t), jobs) for t, jobs in by_type.items()}
    return {job_type: sentence for job_type, sentence in said.items() if sentence}


def count(outcomes: Sequence[JobOutcome]) -> dict[str, Any]:
    """Return the counts of the summary: leases reaped, retried, dead-lettered, hooks by state."""
    states = Counter(o.hook_state for o in outcomes if o.hook_state)
    return {
        "reaped": sum(o.reaped for o in outcomes),
        "retried": sum(o.retried for o in outcomes),
        "dead_lettered": sum(o.has_dead_letter for o in outcomes),
        "hooks": {name: states[HookState(name)] for name in _COUNTED_HOOKS},
    }


def _differences(role: Role | None, jobs: Sequence[JobOutcome]) -> str:
    if role is None:
        return "is not in the plan"
    if len(jobs) != role.job_count:
        return f"planned {role.job_count} jobs, found {len(jobs)}"
    is_dead = role.status == "DEAD_LETTERED"
    planned = (role.status, role.attempt, role.reaped, role.retried, is_dead, role.hook)
    for job in jobs:
        found = (
            job.status, job.attempt, job.reaped, job.retried, job.has_dead_letter, job.hook_state,
        )  # fmt: skip
        if found != planned:
            return f"planned {_say(planned)}, found {_say(found)}"
    return ""


def _say(facts: tuple[str, int, int, int, bool, HookState | None]) -> str:
    status, attempt, reaped, retried, _, hook = facts
    return (
        f"{status} after attempt {attempt}, reaped {reaped}, retried {retried}, "
        f"hook {hook or 'none'}"
    )
