from dataclasses import replace

import pytest

from reaper.demo.outcomes import JobOutcome
from reaper.demo.scenario import ROLES
from reaper.demo.story import tell
from reaper.demo.verification import count, find_differences
from reaper.jobs import HookState


def planned() -> list[JobOutcome]:
    """The jobs as the plan wants them in the end."""
    return [
        JobOutcome(
            job_id=f"{role.job_type}-{number}",
            job_type=role.job_type,
            status=role.status,
            attempt=role.attempt,
            max_attempts=role.max_attempts,
            worker_id=None,
            is_expired=False,
            reaped=role.reaped,
            retried=role.retried,
            has_dead_letter=role.status == "DEAD_LETTERED",
            hook_state=role.hook,
            hook_error=None,
        )
        for role in ROLES
        for number in range(role.job_count)
    ]


def test_verification_is_content_when_all_went_as_planned():
    assert find_differences(planned()) == {}
    assert all(job.is_final for job in planned())


@pytest.mark.parametrize(
    "change",
    [
        {"status": "PENDING"},
        {"attempt": 9},
        {"reaped": 9},
        {"retried": 9},
        {"has_dead_letter": None},
        {"hook_state": HookState.RUNNING},
    ],
)
def test_verification_names_the_job_when_anything_differs(change):
    """Exit status 0 only if every planned outcome was found in the database."""
    for index, job in enumerate(planned()):
        jobs = planned()
        jobs[index] = replace(job, **change)
        assert list(find_differences(jobs)) == [job.job_type]


def test_verification_names_the_job_when_one_is_missing_or_unknown():
    first, *others = planned()
    assert "found 0" in find_differences(others)[first.job_type]
    stranger = replace(first, job_type="stranger")
    assert find_differences([*planned(), stranger]) == {"stranger": "is not in the plan"}


def test_count_adds_up_leases_and_hooks():
    assert count(planned()) == {
        "reaped": 9,
        "retried": 4,
        "dead_lettered": 5,
        "hooks": {"completed": 3, "failed": 1, "timed_out": 1, "pending": 0, "running": 0},
    }


def test_outcome_is_not_final_while_a_hook_is_open_or_missing():
    dead = next(job for job in planned() if job.status == "DEAD_LETTERED")
    for state in (None, HookState.PENDING, HookState.RUNNING):
        assert not replace(dead, hook_state=state).is_final


def test_story_tells_each_change_once():
    before = [replace(job, status="LEASED", worker_id="w", reaped=0, retried=0,
                      has_dead_letter=False, hook_state=None) for job in planned()]  # fmt: skip
    told = "\n".join(tell(before, planned()))
    assert "finished: daily-report, 3 x send-invoice" in told
    assert "back into the queue: 3 x send-invoice, render-video" in told
    assert "dead-lettered, a hook owed for each: render-video, 2 x charge-card" in told
    assert "hook timed out: the handler of sync-crm hung" in told
    assert tell(planned(), planned()) == []
