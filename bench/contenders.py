"""The contenders: ours, and the peers in the configuration in which each is fastest."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from typing import Any, ClassVar

from bench import outfit
from bench.contender import Contender, Lab, PostgresContender


class Holdfast(PostgresContender):
    """`holdfast worker` with its defaults."""

    name = "holdfast"
    executor: ClassVar[str] = "inline"
    slots: ClassVar[int | None] = None

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab)
        self.versions = {"holdfast": metadata.version("holdfast"), "psycopg": metadata.version("psycopg")}
        self.config = f"holdfast worker --executor {self.executor}" + (f" --slots {self.slots}" if self.slots else "")

    @property
    def database(self) -> str:
        return f"{self.lab.prefix}_holdfast"

    def make_schema(self, url: str) -> None:
        from holdfast.schema import migrate

        migrate.upgrade(url)

    def environment(self) -> dict[str, str]:
        return self.lab.environment(HOLDFAST_DATABASE_URL=self.url)

    def client_command(self) -> list[str]:
        return [sys.executable, "-m", "bench.programs.holdfast_client"]

    def worker_commands(self, workers: int) -> list[list[str]]:
        command = [sys.executable, "-m", "holdfast", "worker", "--tasks", "bench.programs.holdfast_tasks"]
        command += ["--executor", self.executor]
        if self.slots:
            command += ["--slots", str(self.slots)]
        return [command] * workers

    def unfinished(self, total: int) -> bool:
        found = self.sql(
            "select exists (select from holdfast.ready) or exists (select from holdfast.leases)"
            " or exists (select from holdfast.waiting)"
        )
        return bool(found[0][0])

    def verify(self, total: int) -> None:
        """Every run ended once, with its own result, under a fenced attempt, and was counted."""
        wrong = self.sql("""
            select count(*) from holdfast.runs left join holdfast.attempts on attempts.run_id = runs.id
            where attempts.outcome is distinct from 'SUCCEEDED' or attempts.number <> 1
               or (attempts.result ->> 'ok')::bigint is distinct from (runs.parameters ->> 'n')::bigint""")[0][0]
        ended = self.sql("select count(*) from holdfast.attempts where outcome = 'SUCCEEDED'")[0][0]
        counted = self.sql("""
            select coalesce(sum(amount), 0) from (
                select kind, amount from holdfast.summary union all select kind, amount from holdfast.tallies) as every
            where kind = 'SUCCEEDED'""")[0][0]
        if wrong or ended != total or counted != total:
            raise RuntimeError(f"{total} runs: {ended} ended, {counted} counted, {wrong} not as promised")


class HoldfastProcess(Holdfast):
    """The same with child processes: isolated, killable."""

    name = "holdfast-process"
    executor = "process"
    slots = 2


class Peer(PostgresContender):
    """A peer on Postgres, under the peers' interpreter."""

    program: ClassVar[str]
    package: ClassVar[str]

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab)
        version = self._version()
        self.versions = {self.package: version or "absent"}
        if version is None:
            self.missing = f"{self.package} could not be installed here"

    def _version(self) -> str | None:
        return outfit.python_version(self.package)

    def command(self, action: str, url: str) -> list[str]:
        return [str(outfit.PEERS_PYTHON), "-m", f"bench.programs.{self.program}", action, url]

    def make_schema(self, url: str) -> None:
        subprocess.run(self.command("schema", url), env=self.environment(), check=True)

    def client_command(self) -> list[str]:
        return self.command("client", self.url)

    def worker_commands(self, workers: int) -> list[list[str]]:
        return [self.command("worker", self.url)] * workers

    count: ClassVar[str]

    def unfinished(self, total: int) -> bool:
        return bool(self.sql(self.count)[0][0] < total)


class PGQueuer(Peer):
    name = "pgqueuer"
    program = package = "pgqueuer"
    config = "asyncpg, uvloop, batch_size 1000"
    count = "select count(*) from pgqueuer_log where status = 'successful'"


class Procrastinate(Peer):
    name = "procrastinate"
    program = package = "procrastinate"
    config = "asynchronous worker, concurrency 30"
    count = "select count(*) from procrastinate_jobs where status = 'succeeded'"


class NodePeer(Peer):
    def _version(self) -> str | None:
        return outfit.node_version(self.package)

    def command(self, action: str, url: str) -> list[str]:
        return ["node", str(outfit.HERE / "programs" / "node.mjs"), self.program, action, url]


class Graphile(NodePeer):
    """It deletes what has ended, so its store has finished when it is empty."""

    name = "graphile"
    program = "graphile"
    package = "graphile-worker"
    config = "concurrentJobs 24, localQueue.size 500, completeJobBatchDelay 0"

    def unfinished(self, total: int) -> bool:
        return bool(self.sql("select exists (select from graphile_worker._private_jobs)")[0][0])


class PgBoss(NodePeer):
    name = "pg-boss"
    program = "pgboss"
    package = "pg-boss"
    config = "batchSize 5000, pollingIntervalSeconds 0.5 (its minimum)"
    count = "select count(*) from pgboss.job where state = 'completed' and name = 'noop'"


class RedisPeer(Contender):
    """A peer whose store is Redis."""

    package: ClassVar[str]
    database: ClassVar[int] = 0

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab)
        version = outfit.python_version(self.package)
        self.versions = {self.package: version or "absent"}
        if version is None:
            self.missing = f"{self.package} could not be installed here"
        if lab.redis is None:
            self.missing = "there is no redis-server here"

    def redis(self) -> Any:
        from redis import Redis

        return Redis.from_url(f"{self.lab.redis}/{self.database}")

    def fresh(self) -> None:
        with self.redis() as connection:
            connection.flushall()

    def client_command(self) -> list[str]:
        return [str(outfit.PEERS_PYTHON), "-m", f"bench.programs.{self.package}"]


class Huey(RedisPeer):
    name = "huey"
    package = "huey"
    config = "Redis, blocking pop, 4 threads, results stored"

    def client_command(self) -> list[str]:
        # Tasks are named by their module, which must not be `__main__`: the consumer knows it by its name.
        return [str(outfit.PEERS_PYTHON), "-c", "from bench.programs import huey; huey.main()"]

    def worker_commands(self, workers: int) -> list[list[str]]:
        consumer = str(outfit.PEERS_PYTHON.parent / "huey_consumer")
        return [[consumer, "bench.programs.huey.huey", "-w", "4", "-k", "thread", "-q", "-n"]] * workers

    def unfinished(self, total: int) -> bool:
        with self.redis() as connection:
            return bool(connection.hlen("huey.results.bench") < total)


class Celery(RedisPeer):
    name = "celery"
    package = "celery"
    database = 1
    config = "Redis broker and results, prefork, concurrency 2, prefetch 64"

    def worker_commands(self, workers: int) -> list[list[str]]:
        celery = [
            str(outfit.PEERS_PYTHON),
            "-m",
            "celery",
            "-A",
            "bench.programs.celery",
            "worker",
            "--pool",
            "prefork",
        ]
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "error"]
        return [[*celery, "--concurrency", "2", "-n", f"w{index}@bench", *quiet] for index in range(workers)]

    def unfinished(self, total: int) -> bool:
        with self.redis() as connection:
            return bool(connection.dbsize() < total)
