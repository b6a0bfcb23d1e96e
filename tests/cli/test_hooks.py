"""`reaper hooks`: what is printed, what is refused; and a real worker that runs what is retried."""

import json

import pytest

from tests.harness import databases
from tests.harness.rows import effects, hook_states, insert_hook
from tests.harness.waiting import eventually


@pytest.mark.slow
def test_a_retried_hook_is_run_again_by_a_real_worker(invoke, processes, kill, connect):
    """A handler deployed later finds its notices: unhandled, retried, called."""
    kill(job_type="ok")
    connection = connect()
    processes.beat(interval_seconds=0.3)
    processes.reap_worker(interval_seconds=0.3)
    without = processes.hook_worker(handlers="")
    eventually(lambda: hook_states(connection) == {"unhandled": 1}, 60)
    without.terminate()
    without.wait()
    processes.hook_worker().ready()

    done = invoke("hooks", "retry", "--state", "unhandled", "--type", "ok")

    assert (done.returncode, done.stdout) == (0, "1 owed again\n")
    eventually(lambda: hook_states(connection) == {"completed": 1}, 60)
    assert len(effects(connection, "ok")) == 1


def test_hooks_are_listed_shown_and_counted(invoke, connect):
    hook_id = str(insert_hook(connect(), state="failed", payload='{"secret": 1}', error="boom"))

    listed = invoke("hooks", "list", "--state", "failed", "--state", "timed_out")
    shown = invoke("hooks", "show", hook_id)
    document = json.loads(invoke("hooks", "show", hook_id, "--json", "--payload").stdout)
    dry = json.loads(invoke("hooks", "retry", "--all", "--dry-run", "--json").stdout)

    assert "boom" in listed.stdout
    assert "boom" in shown.stdout
    assert "secret" not in listed.stdout + shown.stdout
    assert document["payload"] == {"secret": 1}
    assert dry == {"matching": 1, "changed": 0, "dry_run": True}
    assert hook_states(connect()) == {"failed": 1}


def test_bad_input_is_a_sentence_with_status_two(invoke, connect, dsn):
    """Bad input: unknown id, wrong filter, no rights; nothing is changed."""
    hook_id = insert_hook(connect(), state="running", due_seconds=60)
    insert_hook(connect(), state="failed")
    cases = {
        ("show", "x"): "'x' is not a hook's id",
        ("show", "99999999999999999999999"): "is not a hook's id",
        ("retry", "424242"): "no hook 424242",
        ("retry", str(hook_id)): f"hook {hook_id} runs now",
        ("retry",): "say --all",
        ("retry", "--state", "running"): "'running' is not one of",
    }
    for args, said in cases.items():
        done = invoke("hooks", *args)
        assert (done.returncode, done.stdout) == (2, ""), args
        assert said in done.stderr.replace("\n", " ")
    with databases.role(dsn) as (role, url):
        databases.run(dsn, f"GRANT USAGE ON SCHEMA reaper TO {role}")
        databases.run(dsn, f"GRANT SELECT ON ALL TABLES IN SCHEMA reaper TO {role}")
        denied = invoke("hooks", "retry", "--all", database_url=url)
    assert denied.returncode == 2
    assert "permission denied for table terminal_hooks" in denied.stderr
    assert "reaper migrate --grant" in denied.stderr
    assert hook_states(connect()) == {"failed": 1, "running": 1}
