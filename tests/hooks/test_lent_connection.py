"""The connection a transactional handler is lent: one per process, fresh for each hook."""

from psycopg2 import extras

from reaper.jobs import HookState
from reaper.store import Database
from tests.harness.rows import effects, fetch, hook_states, insert_hook
from tests.hooks.test_claims import claim
from tests.hooks.test_transactional import insert, send


def test_what_a_handler_leaves_on_its_connection_touches_no_other_hook(
    runner, registry, connect, dsn
):
    """Cursor factory, settings, temporary tables, encoding: the next hook's connection is fresh."""

    def untidy(_context, _payload, _dead_letter, connection):
        connection.cursor_factory = extras.RealDictCursor
        send(connection, "CREATE TEMPORARY TABLE left_over (a int)")
        send(connection, "SET search_path = nowhere")
        send(connection, "SET client_encoding = 'LATIN1'")
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO public.effects VALUES (DEFAULT, 'j', 1, 1, 'effect')")

    seen = []

    def tidy(_context, _payload, _dead_letter, connection):
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('search_path'), to_regclass('left_over')")
            seen.append((*cursor.fetchone(), connection.encoding))

    registry.add("untidy", untidy, transactional=True)
    registry.add("tidy", tidy, transactional=True)
    observer, worker = connect(), runner()
    for job_type in ("untidy", "tidy"):
        hook_id = insert_hook(observer, job_type=job_type)
        assert worker.run(hook_id, 1).state is HookState.COMPLETED
    assert seen == [('"$user", public', None, "UTF8")]
    assert len(effects(observer)) == 1


def test_process_has_one_connection_however_many_hooks_it_ran(runner, registry, connect, dsn):
    registry.add("demo", lambda _c, _p, _d, connection: insert(connection), transactional=True)
    observer, worker = connect(), runner()
    for _ in range(20):
        worker.run(insert_hook(observer), 1)
    others = (
        "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = 'reaper'"
    )
    assert fetch(observer, others)[0]["n"] <= 1
    assert hook_states(observer) == {"completed": 20}


def test_borrowed_connection_may_have_any_cursor_factory(connect):
    """Statements in a caller's own transaction read plain rows."""
    caller = connect()
    caller.cursor_factory = extras.RealDictCursor
    assert claim(Database.borrow(caller), insert_hook(connect()))
