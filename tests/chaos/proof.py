"""The proof: what must hold afterwards, each a question to the database with the answer 0."""

from pathlib import Path
from typing import Any

from tests.harness.rows import fetch

FINAL = ("completed", "failed", "timed_out", "unhandled")

QUESTIONS = {
    "jobs enqueued and gone": """
        SELECT count(*) AS n FROM unnest(%(known)s::uuid[]) AS k (id)
        WHERE NOT EXISTS (SELECT FROM job_queue AS q WHERE q.id = k.id)
    """,
    "jobs without their ENQUEUED event, or events without a job": """
        SELECT abs((SELECT count(*) FROM job_queue)
            - (SELECT count(*) FROM job_events WHERE event_type = 'ENQUEUED')) AS n
    """,
    "expired leases": """
        SELECT count(*) AS n FROM job_queue WHERE status = 'LEASED' AND lease_expires_at < now()
    """,
    "exhausted jobs whose lease expired, not dead-lettered": """
        SELECT count(*) AS n FROM job_queue
        WHERE attempt >= max_attempts AND status_reason = 'LEASE_EXPIRED'
            AND status NOT IN ('DEAD_LETTERED')
    """,
    "dead-lettered jobs without a dead letter": """
        SELECT count(*) AS n FROM job_queue AS q
        WHERE q.status = 'DEAD_LETTERED'
            AND NOT EXISTS (SELECT FROM job_dead_letters AS d WHERE d.job_id = q.id)
    """,
    "dead letters of jobs that did not die": """
        SELECT count(*) AS n FROM job_dead_letters AS d JOIN job_queue AS q ON q.id = d.job_id
        WHERE q.status <> 'DEAD_LETTERED'
    """,
    "dead letters without exactly one ledger row": """
        SELECT count(*) AS n FROM job_dead_letters AS d
        WHERE (
            SELECT count(*) FROM reaper.terminal_hooks AS h
            WHERE h.job_id = d.job_id::text AND h.run_number = d.run_number
                AND h.attempt = d.attempt
        ) <> 1
    """,
    "ledger rows without a dead letter": """
        SELECT count(*) AS n FROM reaper.terminal_hooks AS h
        WHERE NOT EXISTS (SELECT FROM job_dead_letters AS d WHERE d.job_id::text = h.job_id)
    """,
    "deaths without exactly one DEAD_LETTERED event": """
        SELECT count(*) AS n FROM reaper.terminal_hooks AS h
        LEFT JOIN (
            SELECT job_id::text, run_number, attempt, count(*) AS said FROM job_events
            WHERE event_type = 'DEAD_LETTERED' GROUP BY 1, 2, 3
        ) AS e USING (job_id, run_number, attempt)
        WHERE e.said IS DISTINCT FROM 1
    """,
    "reaped attempts left open": """
        SELECT count(*) AS n FROM job_attempts AS a JOIN job_queue AS q ON q.id = a.job_id
        WHERE a.finished_at IS NULL AND q.status <> 'LEASED'
    """,
    "hooks not final": """
        SELECT count(*) AS n FROM reaper.terminal_hooks WHERE state NOT IN %(final)s
    """,
    "hooks given up as lost": """
        SELECT count(*) AS n FROM reaper.terminal_hooks WHERE error = 'worker lost'
            AND state = 'failed'
    """,
    "transactional hooks completed without exactly one effect": """
        SELECT count(*) AS n FROM reaper.terminal_hooks AS h
        WHERE h.job_type = 'transactional' AND h.state = 'completed' AND (
            SELECT count(*) FROM chaos_effects AS e
            WHERE e.job_id = h.job_id AND e.run_number = h.run_number AND e.attempt = h.attempt
        ) <> 1
    """,
    "transactional hooks not completed, with an effect": """
        SELECT count(*) AS n FROM reaper.terminal_hooks AS h
        WHERE h.job_type = 'transactional' AND h.state <> 'completed' AND EXISTS (
            SELECT FROM chaos_effects AS e
            WHERE e.job_id = h.job_id AND e.run_number = h.run_number AND e.attempt = h.attempt
        )
    """,
    "completed hooks without an effect": """
        SELECT count(*) AS n FROM reaper.terminal_hooks AS h
        WHERE h.state = 'completed' AND NOT EXISTS (
            SELECT FROM chaos_effects AS e
            WHERE e.job_id = h.job_id AND e.run_number = h.run_number AND e.attempt = h.attempt
        )
    """,
}


def unsettled(connection: Any) -> int:
    """Return how many leases and hooks still wait for somebody."""
    text = """
        SELECT (SELECT count(*) FROM job_queue WHERE status = 'LEASED')
            + (SELECT count(*) FROM reaper.terminal_hooks WHERE state NOT IN %(final)s) AS n
    """
    return int(fetch(connection, text, {"final": FINAL})[0]["n"])


def answers(connection: Any, known: list[str], locks: Path) -> dict[str, int]:
    """Return the answer to each question; all must be 0."""
    parameters = {"known": known, "final": FINAL}
    found = {
        name: int(fetch(connection, text, parameters)[0]["n"]) for name, text in QUESTIONS.items()
    }
    found["handlers that ran twice at the same time"] = len(list(locks.glob("overlap-*")))
    return found


def figures(connection: Any) -> dict[str, Any]:
    """Return what the report shows beside the proof."""
    jobs = fetch(connection, "SELECT status::text AS name, count(*) AS n FROM job_queue GROUP BY 1")
    hooks = fetch(
        connection, "SELECT state AS name, count(*) AS n FROM reaper.terminal_hooks GROUP BY 1"
    )
    again = fetch(
        connection,
        "SELECT coalesce(sum(crashes), 0) AS crashes, count(*) FILTER (WHERE tries > 1) AS again"
        " FROM reaper.terminal_hooks",
    )[0]
    twice = fetch(
        connection,
        "SELECT count(*) AS n FROM (SELECT FROM chaos_effects WHERE job_type <> 'transactional'"
        " GROUP BY job_id, run_number, attempt HAVING count(*) > 1) AS e",
    )[0]["n"]
    return {
        "jobs": {row["name"]: row["n"] for row in sorted(jobs, key=lambda row: row["name"])},
        "hooks": {row["name"]: row["n"] for row in sorted(hooks, key=lambda row: row["name"])},
        "workers lost by hooks": int(again["crashes"]),
        "hooks tried again": again["again"],
        "effects written twice by handlers that are not transactional": twice,
    }
