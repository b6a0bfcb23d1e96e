"""Dead letters: listed, shown, put back, given up."""

import threading
from datetime import timedelta

import pytest

from reaper import StoreError
from reaper.operations import batches, dead_letters
from reaper.reap import run_tick
from reaper.selection import Selection, SelectionError
from reaper.store import Database, leasing
from tests.harness.rows import attempts, dead_letter, events, hooks, job

EVERYTHING = Selection()


def requeue(database, selection=EVERYTHING, **options):
    matching = dead_letters.match_dead(database, selection)
    return dead_letters.requeue_dead_letters(database, matching, **options)


def test_requeue_begins_a_new_run_from_attempt_zero(database, connect, kill, rows):
    """A requeued job is claimable at once, its death and attempts stay as they were."""
    [job_id] = kill(attempt=3, max_attempts=3, started=True)
    rows("UPDATE job_queue SET checkpoint = '{\"page\": 7}', progress_done = 1 RETURNING 1")
    before = dead_letter(connect(), job_id)

    result = requeue(database, Selection(ids=(job_id,)))

    assert result == batches.BulkResult(matching=1, changed=1)
    now = job(connect(), job_id)
    assert (now["status"], now["run_number"], now["attempt"]) == ("PENDING", 2, 0)
    assert (now["stage"], now["checkpoint"], now["progress_done"]) == ("queued", {"page": 7}, None)
    assert (now["finished_at"], now["started_at"], now["last_error_code"]) == (None, None, None)
    last = events(connect(), job_id)[-1]
    assert (last["event_type"], last["run_number"], last["attempt"]) == ("REQUEUED", 2, None)
    assert last["payload"] == {"reason": "DEAD_LETTER_REQUEUED", "from_run_number": 1}
    assert dead_letter(connect(), job_id) == before
    assert [(a["run_number"], a["attempt"]) for a in attempts(connect(), job_id)] == [(1, 3)]


def test_requeue_drops_the_checkpoint_when_told_to(database, connect, kill, rows):
    [job_id] = kill()
    rows("UPDATE job_queue SET checkpoint = '{\"page\": 7}' RETURNING 1")

    requeue(database, keep_checkpoint=False)

    assert job(connect(), job_id)["checkpoint"] is None


def test_both_deaths_can_be_read_when_a_requeued_job_dies_again(database, settings, connect, kill):
    """Case 11: a requeued dead letter dies again; its second hook is owed, both can be read."""
    [job_id] = kill(payload='{"n": 12345678901234567890123}')
    requeue(database)
    connection = connect()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE job_queue SET status = 'LEASED', worker_id = 'w2', attempt = 1,"
            " lease_expires_at = now() - interval '1 minute'"
        )
    run_tick(database, settings(), lambda _: True, quiet_seconds=0)

    history = dead_letters.show_dead_letter(database, job_id, with_payload=True)
    assert [(d.run_number, d.lease_owner, d.state) for d in history.deaths] == [
        (2, "w2", "pending"),
        (1, "w1", "pending"),
    ]
    assert history.deaths[0].payload_json == '{"n": 12345678901234567890123}'
    assert history.dead_letter is not None
    assert (history.dead_letter.run_number, history.dead_letter.state) == (2, "dead")
    assert len(hooks(connection, job_id)) == 2


def test_a_death_can_be_read_when_its_job_row_is_deleted(database, kill, rows):
    """Case 35, for the person who asks later."""
    [job_id] = kill()
    rows("DELETE FROM job_queue RETURNING 1")

    history = dead_letters.show_dead_letter(database, job_id)

    assert (history.job, history.dead_letter, history.attempts) == (None, None, [])
    assert [death.job_id for death in history.deaths] == [job_id]
    assert history.deaths[0].payload_json is None


def test_requeue_leaves_alone_what_is_no_longer_dead(database, connect, kill, rows):
    """Compare and set: what moved on between the count and the action is not touched."""
    first, second = kill(2)
    matching = dead_letters.match_dead(database, EVERYTHING)
    rows("UPDATE job_queue SET status = 'SUCCEEDED' WHERE id = %s RETURNING 1", (second,))

    result = dead_letters.requeue_dead_letters(database, matching)

    assert (result.matching, result.changed, result.left) == (2, 1, 1)
    assert job(connect(), first)["run_number"] == 2
    assert (job(connect(), second)["status"], job(connect(), second)["run_number"]) == (
        "SUCCEEDED",
        1,
    )
    assert dead_letters.requeue_dead_letters(database, matching).changed == 0


def test_requeue_does_not_wait_for_a_row_another_session_holds(database, connect, kill):
    ids = kill(3)
    holder = connect()
    holder.autocommit = False
    with holder.cursor() as cursor:
        cursor.execute("SELECT 1 FROM job_queue WHERE id = %s FOR UPDATE", (ids[1],))

    result = requeue(database)

    holder.rollback()
    assert (result.changed, result.left) == (2, 1)
    assert job(connect(), ids[1])["status"] == "DEAD_LETTERED"


def test_requeue_takes_a_job_once_when_it_dies_again_meanwhile(
    database, connect, kill, rows, monkeypatch
):
    """A job that dies as fast as it is put back does not keep the command going for ever."""
    monkeypatch.setattr(batches, "BATCH_SIZE", 1)
    ids = kill(3)

    def die_at_once(_):
        rows("UPDATE job_queue SET status = 'DEAD_LETTERED' WHERE status = 'PENDING' RETURNING 1")
        rows(
            "UPDATE job_dead_letters SET failed_at = clock_timestamp() WHERE job_id IN"
            " (SELECT id FROM job_queue WHERE run_number > 1) RETURNING 1"
        )

    result = requeue(database, progress=die_at_once)

    assert result.changed == 3
    assert {job(connect(), job_id)["run_number"] for job_id in ids} == {2}


def test_two_requeues_at_once_put_each_job_back_once(database, dsn, connect, kill, monkeypatch):
    monkeypatch.setattr(batches, "BATCH_SIZE", 5)
    ids = kill(60)
    matching = dead_letters.match_dead(database, EVERYTHING)
    results = []

    def run():
        own = Database(dsn)
        results.append(dead_letters.requeue_dead_letters(own, matching))
        own.close()

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    again = dead_letters.requeue_dead_letters(database, matching).changed
    assert sum(r.changed for r in results) + again == 60
    assert {job(connect(), job_id)["run_number"] for job_id in ids} == {2}


def test_requeue_takes_the_newest_when_limited(database, connect, kill):
    older, newer = kill(), kill()

    result = requeue(database, Selection(limit=1))

    assert (result.matching, result.changed) == (1, 1)
    assert job(connect(), older[0])["run_number"] == 1
    assert job(connect(), newer[0])["run_number"] == 2


def test_requeue_keeps_the_batches_before_the_one_that_failed(
    database, connect, kill, rows, monkeypatch
):
    monkeypatch.setattr(batches, "BATCH_SIZE", 2)
    ids = [*kill(), *kill(2), *kill(2)]
    rows(f"""
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'secret of the row'; END $$;
        CREATE TRIGGER refuse BEFORE UPDATE ON job_queue FOR EACH ROW
        WHEN (old.id = '{ids[0]}') EXECUTE FUNCTION refuse();
        SELECT 1
    """)
    changed = []

    with pytest.raises(StoreError, match="P0001") as caught:
        requeue(database, progress=changed.append)

    assert "secret" not in str(caught.value)
    assert changed == [2, 2]
    assert [job(connect(), job_id)["run_number"] for job_id in ids] == [1, 2, 2, 2, 2]


@pytest.mark.parametrize("moved_on", [False, True])
def test_an_unknown_id_refuses_the_whole_action(database, connect, kill, moved_on):
    """Bad input: a sentence that names the id; nothing is changed."""
    ids = kill(2)
    if moved_on:
        requeue(database, Selection(ids=(ids[1],)))
        wanted, why = ids[1], "was requeued"
    else:
        wanted, why = "00000000-0000-0000-0000-000000000001", "no dead letter"

    with pytest.raises(SelectionError, match=f"{wanted}.*{why}.*nothing was changed"):
        dead_letters.match_dead(database, Selection(ids=(ids[0], wanted)))

    assert job(connect(), ids[0])["run_number"] == 1


def test_filters_choose_by_type_time_and_organization(database, kill, rows):
    one = "11111111-1111-1111-1111-111111111111"
    [old] = kill(job_type="mail")
    rows("UPDATE job_dead_letters SET failed_at = now() - interval '2 hours' RETURNING 1")
    [of_one] = kill(job_type="mail", organization_id=one)
    [other] = kill(job_type="fax")

    def listed(**filters):
        return [d.job_id for d in dead_letters.list_dead_letters(database, Selection(**filters))]

    assert listed() == [other, of_one, old]
    assert listed(job_type="mail") == [of_one, old]
    assert listed(job_type="mail", since=timedelta(hours=1)) == [of_one]
    assert listed(organization_id=one) == [of_one]
    assert listed(limit=1) == [other]
    assert dead_letters.match_dead(database, Selection(job_type="mail")).count == 2


def test_a_state_tells_what_became_of_a_death(database, kill):
    dead, requeued, discarded = kill(3)
    requeue(database, Selection(ids=(requeued,)))
    matching = dead_letters.match_dead(database, Selection(ids=(discarded,)))
    assert dead_letters.discard_dead_letters(database, matching).changed == 1

    def of(state):
        found = dead_letters.list_dead_letters(database, Selection(states=(state,)))
        return [row.job_id for row in found]

    assert (of("dead"), of("requeued"), of("discarded")) == ([dead], [requeued], [discarded])


def test_discard_cancels_the_job_and_keeps_everything_else(database, connect, kill):
    """Giving up deletes nothing, and the hook that is owed stays owed."""
    [job_id] = kill()
    before = dead_letter(connect(), job_id)

    matching = dead_letters.match_dead(database, EVERYTHING)
    dead_letters.discard_dead_letters(database, matching)

    now = job(connect(), job_id)
    assert (now["status"], now["status_reason"]) == ("CANCELED", "DISCARDED")
    assert events(connect(), job_id)[-1]["event_type"] == "CANCELED"
    assert dead_letter(connect(), job_id) == before
    assert hooks(connect(), job_id)[0]["state"] == "pending"
    assert dead_letters.discard_dead_letters(database, matching).changed == 0


def test_a_job_of_a_workflow_is_left_alone(database, connect, kill, rows):
    [job_id] = kill()
    rows("UPDATE job_queue SET workflow_step_id = gen_random_uuid() RETURNING 1")

    assert requeue(database).left == 1
    assert job(connect(), job_id)["status"] == "DEAD_LETTERED"


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        (Selection(job_type="dem"), "'dem'; there are 'demo'"),
        (Selection(states=("gone",)), "choose from dead, requeued, discarded"),
        (Selection(ids=("x",)), "'x' is not a job id"),
    ],
)
def test_a_wrong_filter_is_a_sentence(database, kill, selection, said):
    kill()
    with pytest.raises(SelectionError, match=said):
        dead_letters.list_dead_letters(database, selection)


def test_a_requeued_job_can_be_claimed_at_once(database, kill):
    [job_id] = kill(job_type="again")
    requeue(database)

    [lease] = leasing.claim_jobs(
        database, worker_id="w9", lease_seconds=30, batch_size=5, job_types=None, prestart=False
    )

    assert (lease.job_id, lease.run_number, lease.attempt) == (job_id, 2, 1)
