"""`rediss://` and `sslmode=verify-full`: tried with a real CA, a wrong one and a wrong name."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg2
import pytest

from reaper.embedded import EmbeddedPostgres
from reaper.errors import StoreError
from reaper.store import Database
from tests.harness.rows import fetch, hook_states, insert_leased
from tests.harness.waiting import eventually
from tests.security.tls import Authority, TlsProxy

POSTGRES_15 = Path("/usr/lib/postgresql/15/bin")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def other(tmp_path: Path) -> Authority:
    """Another CA, which signed nothing here."""
    (tmp_path / "other").mkdir()
    return Authority(tmp_path / "other")


@pytest.fixture
def secure_dsn(dsn: str, authority: Authority) -> Iterator[str]:
    """The test's database behind TLS; as keywords, without sslmode."""
    given = psycopg2.extensions.parse_dsn(dsn)
    host, port = given["host"], given.get("port", "5432")
    target = f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, int(port))
    context = authority.server_context("localhost")
    with TlsProxy(target, context, postgres=True) as proxy:
        more = {"host": "localhost", "port": str(proxy.port), "gssencmode": "disable"}
        yield psycopg2.extensions.make_dsn(**(given | more))


@pytest.fixture
def secure_broker(broker_url: str, authority: Authority) -> Iterator[str]:
    """The test's broker behind TLS, without ssl_* options."""
    parts = urlsplit(broker_url)
    context = authority.server_context("localhost")
    with TlsProxy((parts.hostname, parts.port), context) as proxy:
        login = parts.netloc.rpartition("@")[0]
        yield f"rediss://{login}{'@' if login else ''}localhost:{proxy.port}{parts.path or '/0'}"


def test_everything_works_over_tls_that_is_verified(
    processes, connect, secure_dsn, secure_broker, authority
):
    """`rediss://` and `sslmode=verify-full`: a lease ends in its handler, all of it over TLS."""
    connection = connect()
    secure = processes.at(
        dsn=f"{secure_dsn} sslmode=verify-full sslrootcert={authority.ca_path}",
        broker_url=f"{secure_broker}?ssl_cert_reqs=required&ssl_ca_certs={authority.ca_path}",
    )
    insert_leased(connection, job_type="ok")
    secure.beat(interval_seconds=0.5)
    secure.reap_worker(interval_seconds=0.5)
    secure.hook_worker()
    eventually(lambda: hook_states(connection)["completed"] == 1, 60)


def test_a_certificate_of_another_authority_is_refused_in_one_line(
    processes, secure_dsn, secure_broker, authority, other
):
    """A server nobody vouches for is not spoken to, nor a broker without any ssl_* option."""
    trusting = f"?ssl_cert_reqs=required&ssl_ca_certs={authority.ca_path}"
    database = processes.reap_worker(
        REAPER_DATABASE_URL=f"{secure_dsn} sslmode=verify-full sslrootcert={other.ca_path}"
    )
    broker = processes.reap_worker(
        REAPER_BROKER_URL=f"{secure_broker}?ssl_cert_reqs=required&ssl_ca_certs={other.ca_path}"
    )
    default = processes.reap_worker(REAPER_BROKER_URL=secure_broker)
    good = processes.reap_worker(REAPER_BROKER_URL=secure_broker + trusting)

    for process, name in (
        (database, "REAPER_DATABASE_URL"),
        (broker, "REAPER_BROKER_URL"),
        (default, "REAPER_BROKER_URL"),
    ):
        assert process.wait(60) == 1, process.log
        (line,) = [line for line in process.log.splitlines() if line.startswith("reaper: ")]
        assert name in line
        assert "Traceback" not in process.log
    good.ready()


@pytest.mark.parametrize(
    ("mode", "works"), [("verify-full", False), ("verify-ca", True), ("require", True)]
)
def test_sslmode_means_what_libpq_says(secure_dsn, authority, mode, works):
    """The certificate is for `localhost`: verify-full refuses it under another name."""
    dsn = f"{secure_dsn} sslmode={mode} sslrootcert={authority.ca_path}"
    database = Database(dsn.replace("host=localhost", "host=elsewhere hostaddr=127.0.0.1"))
    if works:
        database.execute("schema_version")
    else:
        with pytest.raises(StoreError, match="elsewhere"):
            database.execute("schema_version")
    database.close()


@pytest.mark.skipif(not POSTGRES_15.is_dir(), reason="no PostgreSQL built with TLS on this machine")
def test_verify_full_is_kept_against_a_server_with_tls_of_its_own(tmp_path, authority, other):
    """The same against PostgreSQL's own TLS, and the session is encrypted."""
    certificate, key = authority.write_certificate("127.0.0.1")
    with EmbeddedPostgres(bin_dir=POSTGRES_15, tcp_port=0, settings={"fsync": "off"}) as server:
        data = server.directory / "data"
        owner = data.stat()
        for path, name in ((certificate, "server.crt"), (key, "server.key")):
            shutil.copy(path, data / name)
            (data / name).chmod(0o600)
            os.chown(data / name, owner.st_uid, owner.st_gid)
        admin = psycopg2.connect(server.dsn)
        admin.autocommit = True
        admin.cursor().execute("ALTER SYSTEM SET ssl = on")
        admin.close()
        server.restart()

        url = server.dsn_for("postgres", tcp=True) + "?sslmode=verify-full&sslrootcert="
        connection = psycopg2.connect(url + str(authority.ca_path))
        ssl_row = fetch(connection, "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
        connection.close()
        assert ssl_row == [{"ssl": True}]
        database = Database(url + str(other.ca_path))
        with pytest.raises(StoreError, match="certificate verify failed"):
            database.execute("schema_version")
