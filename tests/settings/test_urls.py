"""URLs and DSNs: every form libpq and Celery know, a sentence for the rest, passwords masked."""

import pytest
from psycopg2.extensions import parse_dsn

from reaper.config import Settings
from reaper.errors import ConfigError
from reaper.store import Database
from reaper.urls import broker_fault, database_fault, mask, mask_value

DATABASES = [
    "postgresql://",
    "postgres://u:p@h/d",
    "postgresql://u:p%40s@h1:5432,h2:5433/d?target_session_attrs=read-write",
    "postgresql:///d?host=/var/run/postgresql",
    "postgresql://%2Fvar%2Frun/d",
    "postgresql://u@[::1]:5432/d?sslmode=verify-full&sslrootcert=/ca.pem",
    "postgresql://h/d?application_name=me@home",
    "host=/tmp dbname=d",
    "host=h1,h2 port=1,2 user=u password='it\\'s a secret' sslmode=require",
    "service=mydb",
    "service=mydb passfile=/etc/pgpass",
    "dbname = d  user=u",
]

BROKERS = [
    "redis://",
    "redis://:p@h:6379/0",
    "rediss://u:p@h:6379/0?ssl_cert_reqs=required",
    "redis+socket:///tmp/redis.sock",
    "sentinel://:p@h1:26379;sentinel://:p@h2:26379",
    "amqp://u:p@h:5672//",
    "amqps://u:p@h/v",
    "pyamqp://h",
    "memory://",
    "filesystem://",
]


@pytest.mark.parametrize("url", DATABASES)
def test_a_database_url_is_taken_when_libpq_can_read_it(url):
    """Any libpq URL or DSN: socket directories, several hosts, sslmode, passfile, service."""
    parse_dsn(url)
    Database(url)
    assert database_fault(url) is None
    assert Settings.load({"database_url": url}).require_database_url() == url


@pytest.mark.parametrize("url", BROKERS)
def test_a_broker_url_is_taken_when_celery_knows_its_transport(url):
    assert broker_fault(url) is None
    assert Settings.load({"broker_url": url}).broker_url.get_secret_value() == url


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://u:hunter2@h/x", "neither a URL nor pairs of keyword=value"),
        ("postgresql+psycopg2://u:hunter2@h/x", "neither a URL nor pairs"),
        ("localhost", "neither a URL nor pairs"),
        ("host=h dbname", "neither a URL nor pairs"),
        ("host=h password='hunter2", "neither a URL nor pairs"),
        ("host=h password=a hunter2 dbname=x", "neither a URL nor pairs"),
        ("postgresql://u:hun@ter2@h/x", "%40"),
        ("postgresql://u:hun/ter2@h/x", "%2F"),
        ("postgresql://u:hun ter2@h/x", "%20"),
        ("postgresql://u:hunter2@h:54x32/x", "its port is not a number from 1 to 65535"),
        ("postgresql://u:hunter2@h:1,i:65536/x", "its port is not a number from 1 to 65535"),
    ],
)
def test_a_database_url_is_refused_with_the_reason_and_without_its_password(url, said):
    """Case 39: one line with the variable, the masked value and what is allowed."""
    with pytest.raises(ConfigError) as refused:
        Settings.load({"database_url": url})
    line = str(refused.value)
    assert said in line
    assert "it takes a PostgreSQL URL" in line
    assert "\n" not in line
    for part in ("hunter2", "hun", "ter2"):
        assert part not in line


@pytest.mark.parametrize(
    "url", ["postgresql://h/d?nonsense=1", "postgresql://u:hunter2@h/d?port=%"]
)
def test_what_only_libpq_can_tell_is_refused_in_one_sentence_too(url):
    with pytest.raises(ConfigError, match="libpq cannot read it") as refused:
        Database(url)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("localhost:6379", "it is no URL"),
        ("http://h", "Celery knows no transport 'http'"),
        ("reddis://:hunter2@h/0", "Celery knows no transport 'reddis'"),
        ("redis://:hunter2@h:x/0", "its port is not a number"),
        ("redis://:hun@ter2@h/0", "%40"),
        ("redis://:hun/ter2@h/0", "%2F"),
        ("redis://:hunter2@h/0?password=hunter2", "kombu cannot read it"),
        ("sentinel://:hunter2@a:1;bogus://:hunter2@b:1", "Celery knows no transport 'bogus'"),
        ("sqs://a:hunter2@", "needs a package that is not installed"),
    ],
)
def test_a_broker_url_is_refused_with_the_reason_and_without_its_password(url, said):
    """Case 39: an unknown scheme gets a sentence; nothing of a password is shown."""
    with pytest.raises(ConfigError) as refused:
        Settings.load({"broker_url": url})
    line = str(refused.value)
    assert said in line
    assert "it takes a broker URL Celery knows" in line
    assert "\n" not in line
    for part in ("hunter2", "hun", "ter2"):
        assert part not in line


@pytest.mark.parametrize("value", [5, True, ["postgresql://h/d"]])
def test_a_url_that_is_no_text_is_refused(value):
    with pytest.raises(ConfigError, match=r"reaper_database_url in celeryconfig\.py="):
        Settings.load({"database_url": value})


def test_masking_keeps_what_helps_and_nothing_of_a_password():
    assert mask("x redis://u:a@b@h:1/0 y") == "x redis://u:***@h:1/0 y"
    assert mask("redis://h:1/0 and z@w") == "redis://h:1/0 and z@w"
    assert mask("sentinel://:a@h;sentinel://:b@i") == "sentinel://:***@h;sentinel://:***@i"
    assert mask("host=h password='a \\' b' dbname=d") == "host=h password=*** dbname=d"
    assert mask("postgresql://h/d?user=u&password=a&sslmode=x") == (
        "postgresql://h/d?user=u&password=***&sslmode=x"
    )
    assert mask_value("redis://:a b/c@d@h/0") == "redis://:***@h/0"
    assert mask_value("host=h password='a b c") == "host=h password=***"
    assert mask("nothing to hide: 3@4") == "nothing to hide: 3@4"
