"""The project's image, Redis and PostgreSQL as pytest-celery runs them.

`make smoke` turns pytest-celery on. In any other run, and where no Docker engine answers, these
tests are skipped.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import psycopg2
import pytest
from celery import Celery
from docker.errors import DockerException
from pytest_celery import (
    CeleryBrokerCluster,
    CeleryTestContainer,
    CeleryTestSetup,
    CeleryWorkerContainer,
    RedisContainer,
    RedisTestBroker,
)
from pytest_docker_tools import build, container, fxtr

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

DATABASE = "postgresql://reaper:reaper@{address}/reaper"
NETWORK = "{default_pytest_celery_network.name}"

LIMITS = {
    "REAPER_HOOK_TIMEOUT_SECONDS": "6",
    "REAPER_HOOK_KILL_GRACE_SECONDS": "0.5",
}
"""Short, so that a killed worker's hooks are due again soon, and long enough for a slow hook."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what is in this folder where it cannot run, and say why."""
    here = [item for item in items if HERE in item.path.parents]
    reason = _why_not(config) if here else None
    for item in here:
        item.add_marker(pytest.mark.timeout(600))  # the first one builds the image
        # A socket that the Docker client keeps open for its pool is reported when it is collected.
        item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
        item.add_marker(
            pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
        )
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


def _why_not(config: pytest.Config) -> str | None:
    if not config.pluginmanager.has_plugin("celery"):
        return "the image is tested in a run of its own, with pytest-celery: make smoke"
    try:
        client = docker.from_env(timeout=10)
    except DockerException as error:
        return f"no Docker engine answers: {type(error).__name__}"
    client.close()
    return None


def host_port(started: CeleryTestContainer, port: str) -> int:
    """The port on 127.0.0.1; the plugin's own way breaks where the tests run in a container."""
    started.reload()
    return int(started.attrs["NetworkSettings"]["Ports"][port][0]["HostPort"])


class Redis(RedisContainer):
    """The broker, published on loopback only."""

    @classmethod
    def image(cls) -> str:
        return "redis:7"

    @classmethod
    def ports(cls) -> dict[str, Any]:
        return {"6379/tcp": ("127.0.0.1", None)}

    @property
    def port(self) -> int:
        self._wait_port("6379/tcp")
        return host_port(self, "6379/tcp")


class HookWorker(CeleryWorkerContainer):
    """The image as it is: its own command, a hook worker."""

    @classmethod
    def worker_name(cls) -> str:
        return "hooks"


class Setup(CeleryTestSetup):
    """An app in the test process that reaches the worker's remote control."""

    @classmethod
    def update_app_config(cls, app: Celery) -> None:
        app.conf.broker_transport_options = {"global_keyprefix": "reaper:"}


project_image = build(path=str(ROOT), tag="reaper:smoke")

default_redis_broker = container(
    image=Redis.image(),
    ports=Redis.ports(),
    command=Redis.command(),
    wrapper_class=Redis,
    network=NETWORK,
    tmpfs={"/data": ""},  # without it each test leaves an anonymous volume
    timeout=60,
)

postgres_container = container(
    image="postgres:17",
    ports={"5432/tcp": ("127.0.0.1", None)},  # published: ready only when it listens
    environment={
        "POSTGRES_USER": "reaper",
        "POSTGRES_DB": "reaper",
        "POSTGRES_PASSWORD": "reaper",
    },
    wrapper_class=CeleryTestContainer,
    network=NETWORK,
    tmpfs={"/var/lib/postgresql/data": ""},
    timeout=60,
)

default_worker_container = container(
    image="{project_image.id}",
    environment=fxtr("default_worker_env"),
    wrapper_class=HookWorker,
    network=NETWORK,
    volumes={str(HERE / "handlers"): {"bind": "/srv/reaper", "mode": "ro"}},
    timeout=60,
)

tick_container = container(
    image="{project_image.id}",
    command=[
        *["celery", "-A", "reaper", "worker", "-Q", "reaper", "-c", "1", "-B"],
        *["-n", "reap@%h", "-l", "INFO"],
    ],
    environment=fxtr("tick_env"),
    wrapper_class=CeleryWorkerContainer,
    network=NETWORK,
    timeout=60,
)


@pytest.fixture
def celery_setup_cls() -> type[CeleryTestSetup]:
    return Setup


@pytest.fixture
def celery_broker_cluster(celery_redis_broker: RedisTestBroker) -> Iterator[CeleryBrokerCluster]:
    """Redis alone: the plugin's own matrix adds RabbitMQ."""
    cluster = CeleryBrokerCluster(celery_redis_broker)
    yield cluster
    cluster.teardown()


@pytest.fixture
def celery_backend_cluster() -> None:
    """No result backend: the ledger holds the outcomes."""


@pytest.fixture
def smoke_dsn(postgres_container: CeleryTestContainer) -> str:
    """URL of the containers' database, from the test process."""
    return DATABASE.format(address=f"127.0.0.1:{host_port(postgres_container, '5432/tcp')}")


@pytest.fixture
def default_worker_env(
    project_image: Any,
    postgres_container: CeleryTestContainer,
    default_redis_broker: Redis,
    docker_client: docker.DockerClient,
) -> dict[str, str]:
    """Environment of reaper's containers; `reaper migrate` has run in one of them."""
    env = LIMITS | {
        "REAPER_DATABASE_URL": DATABASE.format(address=postgres_container.id[:12]),
        "REAPER_BROKER_URL": default_redis_broker.url,
        "REAPER_HANDLERS": "smoke_handlers",
    }
    said = docker_client.containers.run(
        project_image.id,
        ["reaper", "migrate", "--with-job-tables"],
        environment=env,
        network=next(iter(postgres_container.attrs["NetworkSettings"]["Networks"])),
        remove=True,
        stderr=True,
    )
    assert b"version" in said, said
    return env


@pytest.fixture
def tick_env(default_worker_env: dict[str, str]) -> dict[str, str]:
    """A tick and a redelivery every half second."""
    return default_worker_env | {"REAPER_INTERVAL_SECONDS": "0.5"}


@pytest.fixture
def jobs(
    smoke_dsn: str, tick_container: CeleryWorkerContainer, celery_setup: CeleryTestSetup
) -> Iterator[Any]:
    """A connection to the job tables of a running system: ticks, a hook worker, Redis."""
    assert celery_setup.app.control.ping(timeout=5)
    connection = psycopg2.connect(smoke_dsn)
    connection.autocommit = True
    yield connection
    connection.close()
