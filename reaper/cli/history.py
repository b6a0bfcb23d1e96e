"""One job that died, as `reaper dead-letters show` prints it."""

import json
from dataclasses import asdict

import click

from reaper.cli import documents
from reaper.cli.text import fields, table
from reaper.operations.dead_letters import JobHistory

_DEATHS = ("hook", "run", "attempt", "died", "reason", "lease owner", "hook state", "hook error")
_ATTEMPTS = ("run", "attempt", "worker", "leased", "finished", "outcome", "error")


def echo_history(history: JobHistory, *, as_json: bool) -> None:
    """Print all that is known of one job."""
    click.echo(_document(history) if as_json else "\n\n".join(_parts(history)))


def _document(history: JobHistory) -> str:
    job = json.dumps(asdict(history.job), default=str) if history.job else "null"
    letter = documents.one_object(history.dead_letter) if history.dead_letter else "null"
    deaths = documents.array(documents.one_object(row) for row in history.deaths)
    attempts = documents.array(documents.one_object(row) for row in history.attempts)
    return (
        f'{{"job_id": {json.dumps(history.job_id)}, "job": {job}, "dead_letter": {letter},\n'
        f' "deaths": {deaths},\n "attempts": {attempts}}}'
    )


def _parts(history: JobHistory) -> list[str]:
    parts = [_summary(history)]
    if history.deaths:
        rows = [
            (
                row.hook_id,
                row.run_number,
                row.attempt,
                row.created_at,
                row.reason,
                row.lease_owner,
                row.state,
                row.error,
            )
            for row in history.deaths
        ]
        parts.append("deaths in the ledger, newest first\n" + table(_DEATHS, rows))
    if history.attempts:
        tries = [
            (
                row.run_number,
                row.attempt,
                row.worker_id,
                row.leased_at,
                row.finished_at,
                row.outcome,
                row.error_message or row.error_code,
            )
            for row in history.attempts
        ]
        parts.append("attempts, newest first\n" + table(_ATTEMPTS, tries))
    payloads = [(f"payload of hook {h.hook_id}", h.payload_json) for h in history.deaths]
    letter = history.dead_letter
    payloads += [("payload of the dead letter", letter.payload_json)] if letter else []
    if any(text is not None for _, text in payloads):
        parts.append(fields(payloads))
    return parts


def _summary(history: JobHistory) -> str:
    job, letter = history.job, history.dead_letter
    pairs: list[tuple[str, object]] = [("job", history.job_id)]
    if job is None:
        pairs.append(("now", "deleted from the queue"))
    else:
        pairs += [
            ("type", job.job_type),
            ("organization", job.organization_id),
            ("now", f"{job.status}, run {job.run_number}, attempt {job.attempt}"),
            ("max attempts", job.max_attempts),
            ("stage", job.stage),
        ]
    if letter is not None:
        pairs += [
            ("dead letter", f"{letter.state}, of run {letter.run_number}"),
            ("died", letter.failed_at),
            ("error code", letter.error_code),
            ("error", letter.error_message),
        ]
    return fields(pairs)
