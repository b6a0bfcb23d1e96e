"""`reaper doctor` on the reap and the handlers: each check is made to fail for real."""

from reaper.hooks import HookRunner
from reaper.operations.facts import BrokerView, WorkerSeen
from reaper.reap import run_tick
from reaper.registry import JobRegistry
from tests.harness.rows import insert_leased


def seen(*handlers):
    """A broker on which hook workers with these handlers answer."""
    workers = tuple(
        WorkerSeen(f"hooks-{i}", ("terminal-hooks",), "prefork", 8, tuple(types))
        for i, types in enumerate(handlers)
    )
    return BrokerView(queues={"reaper": 0, "terminal-hooks": 0}, workers=workers)


def test_doctor_finds_that_nothing_ticks(findings, kill, rows):
    """No tick in three intervals, or a tick that begins and never finishes."""
    kill()
    assert findings()["tick"].severity == "ok"
    rows(
        "UPDATE reaper.ticks SET started_at = now() - interval '46 s',"
        " finished_at = now() - interval '46 s' RETURNING 1"
    )
    assert "nothing is reaped" in findings()["tick"].found
    assert findings(interval_seconds=16)["tick"].severity == "ok"
    rows("UPDATE reaper.ticks SET started_at = now() RETURNING 1")
    assert "a tick began" in findings()["tick"].found


def test_doctor_finds_leases_that_wait_too_long(findings, connect):
    insert_leased(connect(), expired_seconds=30)
    assert findings()["oldest-lease"].severity == "ok"
    insert_leased(connect(), 2, expired_seconds=100)

    found = findings()["oldest-lease"]

    assert found.severity == "fail"
    assert "3 leases have expired, the oldest 100 s ago" in found.found


def test_doctor_shows_rows_no_reap_can_move(findings, connect, rows, database, settings):
    """Case 10: never reaped silently, always visible with examples."""
    endless, forever, nobody, dead = insert_leased(connect(), 4, expired_seconds=-600)
    for text in (
        f"UPDATE job_queue SET lease_expires_at = NULL WHERE id = '{endless}'",
        f"UPDATE job_queue SET lease_expires_at = 'infinity' WHERE id = '{forever}'",
        f"UPDATE job_queue SET worker_id = NULL WHERE id = '{nobody}'",
        f"UPDATE job_queue SET status = 'DEAD_LETTERED' WHERE id = '{dead}'",
    ):
        rows(text + " RETURNING 1")

    result = run_tick(database, settings(), lambda _: True, quiet_seconds=0)

    assert result.processed == 0
    found = findings()["anomalies"]
    assert found.severity == "fail"
    for kind, job_id in (
        ("leased without an end", endless),
        ("leased for ever", forever),
        ("leased by nobody", nobody),
        ("dead-lettered without a dead letter", dead),
    ):
        assert f"1 {kind} (job {job_id})" in found.found


def test_doctor_shows_deferred_rows(findings, connect, rows, database, settings):
    """Case 8: the poison row is reported with its SQLSTATE, and is no late lease."""
    [job_id] = insert_leased(connect(), expired_seconds=100)
    rows("""
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'no'; END $$;
        CREATE TRIGGER refuse BEFORE UPDATE ON job_queue FOR EACH ROW EXECUTE FUNCTION refuse();
        SELECT 1
    """)
    run_tick(database, settings(), lambda _: True, quiet_seconds=0)

    found = findings()

    assert found["deferred"].severity == "warn"
    assert f"job {job_id} (SQLSTATE P0001, constraint none, 1 times)" in found["deferred"].found
    assert found["oldest-lease"].severity == "ok"


def test_doctor_shows_jobs_released_unstarted_again_and_again(
    findings, connect, rows, database, settings
):
    """A release costs no attempt: five in one run are a loop somebody has to see."""
    [job_id] = insert_leased(connect(), prestart=True)

    def claim_and_die():
        rows(
            "UPDATE job_queue SET status = 'LEASED', attempt = 1, worker_id = 'w',"
            " lease_expires_at = now() - interval '1 s' RETURNING 1"
        )
        rows(
            "INSERT INTO job_attempts (job_id, attempt, worker_id, leased_at, started_at,"
            " claim_origin) VALUES (%s, 1, 'w', now(), now(), 'WORKER_PRESTART')"
            " ON CONFLICT DO NOTHING RETURNING 1",
            (job_id,),
        )
        run_tick(database, settings(), lambda _: True, quiet_seconds=0)

    for _ in range(4):
        claim_and_die()
    assert findings()["released-unstarted"].severity == "ok"
    claim_and_die()

    found = findings()["released-unstarted"]
    assert found.severity == "warn"
    assert f"job {job_id} (demo, run 1, 5 times)" in found.found


def test_doctor_finds_types_that_die_without_a_handler(findings, kill, rows, database, settings):
    """Seen in the ledger, where a hook ended unhandled, and ahead of it, from what workers say."""
    kill(job_type="orphan")
    assert findings(seen(["other"]))["dying-types"].severity == "warn"
    assert findings(seen(["orphan"], ["orphan", "x"]))["dying-types"].severity == "ok"
    assert findings(seen(["*"]))["dying-types"].severity == "ok"
    assert findings()["dying-types"].severity == "ok"  # nobody told

    runner = HookRunner(database, JobRegistry(), settings(), "w", lambda: None, TimeoutError)
    [row] = rows("SELECT hook_id FROM reaper.terminal_hooks")
    runner.run(row["hook_id"], 1)

    found = findings()["dying-types"]
    assert found.severity == "warn"
    assert "'orphan'" in found.found


def test_doctor_finds_handlers_for_no_known_type(findings, kill):
    kill(job_type="mail")

    assert findings(seen(["mail", "*"]))["handlers"].severity == "ok"
    found = findings(seen(["mail", "mial"]))["handlers"]
    assert found.severity == "warn"
    assert "'mial'" in found.found
    assert "same handlers" in findings(seen(["mail"], ["mail", "*"]))["handlers"].found


def test_doctor_weighs_the_interval_against_the_leases(findings, connect, rows):
    insert_leased(connect(), job_type="quick", expired_seconds=-5)
    rows("UPDATE job_queue SET last_heartbeat_at = lease_expires_at - interval '8 s' RETURNING 1")

    found = findings()["interval"]

    assert found.severity == "warn"
    assert "lease of type 'quick' (8.0 s)" in found.found
    assert findings(interval_seconds=8)["interval"].severity == "ok"


def test_doctor_weighs_the_hook_limits_against_drain_and_broker(findings):
    def limits(visible, **values):
        view = BrokerView(queues={}, visibility_timeout=visible)
        return findings(view, **values)["limits"]

    assert limits(60.0).severity == "ok"
    assert limits(20.0).severity == "fail"
    assert limits(7200.0).severity == "warn"
    assert limits(60.0, drain_seconds=1).severity == "warn"
    assert limits(60.0, hook_timeout_seconds=30).severity == "fail"
