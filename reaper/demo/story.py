"""What happened between two looks at the database, in sentences for a newcomer."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from reaper.demo.outcomes import JobOutcome
from reaper.demo.scenario import HOOK_TIMEOUT_SECONDS, LEASE_SECONDS
from reaper.jobs import HookState

_HOOK_ENDS = {
    HookState.COMPLETED: "hook completed: the handler of {types} returned",
    HookState.FAILED: "hook failed: the handler of {types} raised {error}",
    HookState.TIMED_OUT: "hook timed out: the handler of {types} hung and was cut off "
    f"after {HOOK_TIMEOUT_SECONDS:g} s; its slot is free again",
    HookState.UNHANDLED: "hook unhandled: there is no handler for {types}",
}


def tell(before: Sequence[JobOutcome], after: Sequence[JobOutcome]) -> list[str]:
    """Return what is new in `after`, one sentence per kind of event."""
    known = {job.job_id: job for job in before}
    changes = [(known.get(job.job_id), job) for job in after]

    def newly(claim: Callable[[JobOutcome], bool]) -> list[JobOutcome]:
        return [job for old, job in changes if claim(job) and not (old and claim(old))]

    lines = [*_leases(changes)]
    for jobs, sentence in (
        (newly(lambda job: job.status == "SUCCEEDED"), "finished: {types}"),
        (
            newly(lambda job: job.is_expired),
            f"leases expired, not renewed for {LEASE_SECONDS:g} s: {{types}}",
        ),
        (
            [job for old, job in changes if job.retried > (old.retried if old else 0)],
            "reap: attempts left, back into the queue: {types}",
        ),
        (
            newly(lambda job: job.has_dead_letter),
            "reap: no attempt left, dead-lettered, a hook owed for each: {types}",
        ),
    ):
        if jobs:
            lines.append(sentence.format(types=_types(jobs)))
    for state, sentence in _HOOK_ENDS.items():
        ended = newly(lambda job, state=state: job.hook_state is state)  # type: ignore[misc]
        if ended:
            error = (ended[0].hook_error or "").partition("\n")[0]
            lines.append(sentence.format(types=_types(ended), error=error))
    return lines


def _leases(changes: Iterable[tuple[JobOutcome | None, JobOutcome]]) -> list[str]:
    """One line per worker that took leases."""
    taken: dict[str, list[JobOutcome]] = {}
    for old, job in changes:
        if job.worker_id and (old is None or old.worker_id is None or old.attempt < job.attempt):
            taken.setdefault(job.worker_id, []).append(job)
    return [
        f"{worker} leased for {LEASE_SECONDS:g} s, to renew while it works: {_types(jobs)}"
        for worker, jobs in taken.items()
    ]


def _types(jobs: Sequence[JobOutcome]) -> str:
    counts = Counter(job.job_type for job in jobs)
    return ", ".join(f"{n} x {name}" if n > 1 else name for name, n in counts.items())
