"""`reaper dead-letters`: what is printed, what is refused, with which status."""

import json

from tests.harness.rows import dead_letter, job

PAYLOAD = '{"secret": 12345678901234567890123, "huge": 1e400}'


def test_dead_letters_are_listed_and_shown_without_payloads_unless_asked(invoke, kill, database):
    """A payload appears only with --payload, and then exactly as PostgreSQL has it."""
    [job_id] = kill(payload=PAYLOAD, worker_id="evil\x1b[31m\nworker")

    listed = invoke("dead-letters", "list")
    shown = invoke("dead-letters", "show", job_id)
    with_payload = invoke("dead-letters", "list", "--payload", "--json")
    shown_json = invoke("dead-letters", "show", job_id.upper(), "--payload", "--json")

    for plain in (listed, shown):
        assert plain.returncode == 0
        assert job_id in plain.stdout
        assert "secret" not in plain.stdout
        assert "\x1b" not in plain.stdout
    assert "evil" in shown.stdout
    assert "lease_expired" in shown.stdout
    assert "12345678901234567890123" in with_payload.stdout
    [row] = json.loads(with_payload.stdout)
    assert (row["job_id"], row["state"], row["hook_state"]) == (job_id, "dead", "pending")
    history = json.loads(shown_json.stdout)
    assert history["job"]["status"] == "DEAD_LETTERED"
    assert history["deaths"][0]["payload"]["secret"] == 12345678901234567890123
    assert len(history["attempts"]) == 1


def test_requeue_counts_first_and_refuses_everything_unasked(invoke, kill, connect, rows):
    """--dry-run changes nothing; no filter is refused unless --all; both sides are counted."""
    ids = kill(3, job_type="mail")

    def runs():
        return {row["run_number"] for row in rows("SELECT run_number FROM job_queue")}

    dry = invoke("dead-letters", "requeue", "--type", "mail", "--dry-run", "--json")
    bare = invoke("dead-letters", "requeue", "--limit", "2")
    both = invoke("dead-letters", "requeue", ids[0], "--type", "mail")
    assert json.loads(dry.stdout) == {"matching": 3, "changed": 0, "dry_run": True}
    assert (dry.returncode, bare.returncode, both.returncode) == (0, 2, 2)
    assert "--all" in bare.stderr
    assert "ids" in both.stderr
    assert runs() == {1}

    one = invoke("dead-letters", "requeue", ids[0])
    rest = invoke("dead-letters", "requeue", "--all", "--json")
    assert (one.returncode, one.stdout, one.stderr) == (0, "1 requeued\n", "1 match\n")
    assert json.loads(rest.stdout) == {"matching": 2, "changed": 2, "dry_run": False}
    assert runs() == {2}
    assert dead_letter(connect(), ids[0]) is not None


def test_discard_gives_jobs_up(invoke, kill, connect):
    [job_id] = kill()

    done = invoke("dead-letters", "discard", "--since", "1h", "--json")

    assert json.loads(done.stdout)["changed"] == 1
    assert job(connect(), job_id)["status"] == "CANCELED"
    assert "no dead letters" in invoke("dead-letters", "list").stdout


def test_what_is_left_alone_is_said_with_status_one(invoke, kill, rows):
    kill(2)
    rows(
        "UPDATE job_queue SET workflow_step_id = gen_random_uuid() WHERE id ="
        " (SELECT id FROM job_queue LIMIT 1) RETURNING 1"
    )

    done = invoke("dead-letters", "requeue", "--all")

    assert (done.returncode, done.stdout) == (1, "1 requeued\n")
    assert "1 were left alone" in done.stderr


def test_bad_input_is_a_sentence_with_status_two(invoke, kill, rows):
    """Bad input: unknown id, wrong filter, no connection; nothing is changed."""
    kill()
    nobody = "00000000-0000-0000-0000-000000000009"
    cases = {
        ("requeue", "abc"): "'abc' is not a job id: those are uuids",
        ("show", nobody): f"no job {nobody} died",
        ("requeue", nobody): "nothing was changed",
        ("requeue", "--type", "demmo"): "no job type is called 'demmo'; there are 'demo'",
        ("list", "--since", "yesterday"): "give how long ago",
        ("list", "--organization", "acme"): "those are uuids",
        ("list", "--state", "gone"): "'dead'",
        ("list", "--limit", "0"): "0 is not in the range",
    }

    for args, said in cases.items():
        done = invoke("dead-letters", *args)
        assert (done.returncode, done.stdout) == (2, ""), args
        assert said in done.stderr.replace("\n", " ")
    away = invoke("dead-letters", "list", database_url="postgresql://u:pw@127.0.0.1:9/x")
    assert away.returncode == 2
    assert "cannot be reached" in away.stderr
    assert "pw@" not in away.stderr
    assert [row["run_number"] for row in rows("SELECT run_number FROM job_queue")] == [1]
