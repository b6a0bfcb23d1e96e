"""Fill a peer's tables with stalled jobs, or take them back by the peer's own call.

Run in the peers' virtual environment: `python -m benchmarks.peers.take_back PEER WHAT DSN COUNT`
with WHAT `fill` or `take`; that prints how many jobs it took back and in how many seconds. Must not
import reaper.
"""

import asyncio
import json
import sys
import time
from datetime import timedelta
from typing import Any

import psycopg

STALE = "now() - interval '1 hour'"

QUEUE_BATCH = 500
"""Jobs of one dequeue, as in one batch of reaper's."""


class Oban:
    """Oban Pro's Python edition: what its lifeline runs each minute, one UPDATE for all."""

    async def fill(self, dsn: str, count: int) -> None:
        from oban import Oban as App
        from oban.schema import install

        pool = await App.create_pool(dsn)
        await install(pool)
        await pool.close()
        run(
            dsn,
            "INSERT INTO oban_jobs (state, worker, args, attempt, attempted_at, attempted_by)"
            " SELECT 'executing', 'worker.Job', '{}', CASE WHEN n % 5 = 0 THEN 20 ELSE 2 END,"
            f" timezone('UTC', {STALE}), ARRAY['node'] FROM generate_series(1, {count}) AS n",
        )

    async def take(self, dsn: str, count: int) -> int:  # noqa: ARG002 -- it takes all
        from oban import Oban as App
        from oban._query import Query

        pool = await App.create_pool(dsn)
        query = Query(pool)
        await query.count_jobs(["executing"])  # connected, as a running lifeline is
        clock.start()
        taken = await query.rescue_jobs(300.0)
        clock.stop()
        await pool.close()
        return taken


class Procrastinate:
    """The recipe of its documentation: list the stalled jobs, retry each."""

    async def fill(self, dsn: str, count: int) -> None:
        app = self._app(dsn)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
        run(
            dsn,
            f"INSERT INTO procrastinate_workers (last_heartbeat) VALUES ({STALE})",
            "INSERT INTO procrastinate_jobs (queue_name, task_name, args, status, attempts,"
            " worker_id) SELECT 'default', 'job', '{}', 'doing', 1, 1"
            f" FROM generate_series(1, {count})",
        )

    async def take(self, dsn: str, count: int) -> int:  # noqa: ARG002 -- it takes all
        app = self._app(dsn)
        taken = 0
        async with app.open_async():
            await app.check_connection_async()
            clock.start()
            for job in await app.job_manager.get_stalled_jobs():
                await app.job_manager.retry_job(job)
                taken += 1
            clock.stop()
        return taken

    def _app(self, dsn: str) -> Any:
        from procrastinate import App, PsycopgConnector

        return App(connector=PsycopgConnector(conninfo=dsn))


class Pgqueuer:
    """Its dequeue, which picks stale jobs up again: the only way it takes any back."""

    async def fill(self, dsn: str, count: int) -> None:
        connection, queries = await self._queries(dsn)
        await queries.install()
        await connection.close()
        run(
            dsn,
            "INSERT INTO pgqueuer (priority, entrypoint, payload, status, heartbeat, created,"
            " updated, execute_after, queue_manager_id)"
            f" SELECT 0, 'job', '{{}}', 'picked', {STALE}, {STALE}, {STALE}, {STALE},"
            f" gen_random_uuid() FROM generate_series(1, {count})",
        )

    async def take(self, dsn: str, count: int) -> int:
        from uuid import uuid4

        from pgqueuer.queries import EntrypointExecutionParameter

        connection, queries = await self._queries(dsn)
        entrypoints, taken = {"job": EntrypointExecutionParameter(0)}, 0
        clock.start()
        while taken < count:
            jobs = await queries.dequeue(
                QUEUE_BATCH, entrypoints, uuid4(), None, timedelta(seconds=30)
            )
            taken += len(jobs)
        clock.stop()
        await connection.close()
        return taken

    async def _queries(self, dsn: str) -> tuple[Any, Any]:
        import asyncpg
        from pgqueuer.db import AsyncpgDriver
        from pgqueuer.queries import Queries

        connection = await asyncpg.connect(dsn)
        return connection, Queries(AsyncpgDriver(connection))


class Chancy:
    """What its Recovery plugin runs each minute, one UPDATE for all."""

    async def fill(self, dsn: str, count: int) -> None:
        from chancy import Chancy as App

        async with App(dsn) as app:
            await app.migrate()
        run(
            dsn,
            "INSERT INTO chancy_jobs (id, queue, func, kwargs, meta, state, attempts, max_attempts,"
            " taken_by, started_at) SELECT gen_random_uuid(), 'default', 'job', '{}', '{}',"
            f" 'running', 1, 8, 'lost', {STALE} FROM generate_series(1, {count})",
        )

    async def take(self, dsn: str, count: int) -> int:  # noqa: ARG002 -- it takes all
        from chancy import Chancy as App
        from chancy import Worker
        from chancy.plugins.recovery import Recovery
        from psycopg.rows import dict_row

        async with App(dsn) as app, app.pool.connection() as connection:
            worker = Worker(app, register_signal_handlers=False)
            async with connection.cursor(row_factory=dict_row) as cursor:
                clock.start()
                taken = await Recovery.recover(worker, app, cursor)
                await connection.commit()
                clock.stop()
        return taken


class Clock:
    """Measures the call alone, without its imports and connections."""

    def start(self) -> None:
        self._began = time.perf_counter()

    def stop(self) -> None:
        self.seconds = time.perf_counter() - self._began


clock = Clock()

PEERS = {peer.__name__.lower(): peer for peer in (Oban, Procrastinate, Pgqueuer, Chancy)}


def run(dsn: str, *texts: str) -> None:
    """Run statements, and leave the tables analyzed and on disk."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for text in (*texts, "VACUUM ANALYZE", "CHECKPOINT"):
            connection.execute(text)  # type: ignore[call-overload]


def main() -> None:
    """Do one of both."""
    name, what, dsn, count = sys.argv[1:]
    taken = asyncio.run(getattr(PEERS[name](), what)(dsn, int(count)))
    if what == "take":
        print(json.dumps({"taken": taken, "seconds": clock.seconds}))


if __name__ == "__main__":
    main()
