"""How a worker of your own gets at the jobs: `reaper.connect`, also across a fork."""

import multiprocessing

import pytest

import reaper
from reaper import ConfigError, SchemaError, StoreError, leases
from tests.leases import stand


def test_connect_takes_the_url_of_the_environment_when_none_is_given(dsn, monkeypatch):
    monkeypatch.setenv("REAPER_DATABASE_URL", dsn)
    database = reaper.connect()
    lease = stand.claimed(database)
    leases.succeed(database, lease)
    database.close()


def test_connect_prefers_the_url_it_is_given(dsn, empty_dsn, monkeypatch):
    monkeypatch.setenv("REAPER_DATABASE_URL", empty_dsn)
    database = reaper.connect(dsn)
    assert stand.enqueue(database)
    database.close()


def test_connect_names_the_variable_when_nothing_says_where():
    with pytest.raises(ConfigError, match="REAPER_DATABASE_URL is not set"):
        reaper.connect()


def test_connect_names_the_command_when_the_schema_is_missing(empty_dsn):
    with pytest.raises(SchemaError, match="reaper migrate"):
        reaper.connect(empty_dsn)


def test_connect_says_that_the_server_cannot_be_reached_without_the_password():
    with pytest.raises(StoreError, match="cannot be reached") as caught:
        reaper.connect("postgresql://me:secret@127.0.0.1:1/x")
    assert "secret" not in str(caught.value)


def test_connect_refuses_what_is_no_url_without_the_password():
    with pytest.raises(ConfigError, match="is not allowed") as caught:
        reaper.connect("mysql://me:secret@host/x")
    assert "secret" not in str(caught.value)


def _beat(database, lease, answers):
    leases.heartbeat(database, lease)
    answers.put(database.backend_pid)


def test_connection_is_the_childs_own_after_a_fork(dsn):
    """A forked child beats on a connection of its own; the parent's goes on working."""
    database = reaper.connect(dsn)
    lease = stand.claimed(database)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_beat, args=(database, lease, answers))
    child.start()
    theirs = answers.get(timeout=30)
    child.join(30)
    assert child.exitcode == 0
    assert theirs != database.backend_pid
    leases.succeed(database, lease)
    database.close()
