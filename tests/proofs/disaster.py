"""A disaster: the database's machine is lost with its disk, and comes back from backup and archive under real agents.

python -m tests.proofs.disaster --archive-seconds 60 --seconds 180
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg

from agents.node.state_folder import StateFolder
from app.store.database.versions import LEAP_BY
from tests.proofs.town import PlannerProcess, world
from tests.support.agents import AgentProcess
from tests.support.debian import Cluster, debian_cluster
from tests.support.forked import ROOT
from tests.support.patience import patience, until
from tests.support.server import RunningServer

SCRIPTS = ROOT / "deploy" / "backup"
SETTINGS = {"GPUWRIGHT_RATE_BURST": "100000", "GPUWRIGHT_RATE_PER_SECOND": "10000", "GPUWRIGHT_DATABASE_DIRECT": "1"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was lost, how long it took, and who was believed afterwards."""

    acknowledged: int
    lost: int  # of these, when restored as far as the archive goes
    lost_seconds: float  # before the disaster the oldest of them was acknowledged
    restore_seconds: float  # from the empty machine to a database that takes writes
    whole_seconds: float  # until the fleet was planned again under the new epoch
    wrong_at_the_moment: list[str]  # writes that a restore to a moment should have kept, or not
    seen_before: tuple[int, int]  # epoch and generation, of the agent, before the disaster
    refused: bool  # what the restored database had to say before the leap
    seen_after: tuple[int, int]
    copies_kept: bool  # those that ran at the moment, and before the disaster, were never ended


class Writer(threading.Thread):
    """Creates tenants, and remembers when each was acknowledged."""

    def __init__(self, server: RunningServer) -> None:
        super().__init__()
        self._server = server
        self.acknowledged: list[tuple[str, float]] = []
        self.ending = threading.Event()

    def run(self) -> None:
        while not self.ending.wait(0.05):
            name = f"t{len(self.acknowledged)}"
            body = {"apiVersion": "gpuwright/v1", "kind": "Tenant", "metadata": {"name": name}, "spec": {}}
            try:
                reply = self._server.request("PUT", f"/api/v1/tenants/{name}", body)
            except OSError:
                continue
            if reply.status in (200, 201):
                self.acknowledged.append((name, time.monotonic()))


def disaster(folder: Path, archive_seconds: int, seconds: float) -> Outcome:
    """Everything from a running fleet to one that runs again."""
    with ExitStack() as stack:
        cluster = stack.enter_context(debian_cluster())
        backup = cluster.folder / "backup"
        (backup / "wal").mkdir(parents=True)
        conf = (
            (SCRIPTS / "postgresql.conf")
            .read_text()
            .replace("archive_timeout = 60", f"archive_timeout = {archive_seconds}")
        )
        tools = cluster.folder / "tools"  # where a user without rights reaches them
        shutil.copytree(SCRIPTS, tools)
        conf = conf.replace("/usr/local/lib/gpuwright", str(tools)).replace("/srv/backup/gpuwright", str(backup))
        cluster.initialize(conf)
        cluster.start()
        cluster.run("createdb", "-h", "127.0.0.1", "-p", str(cluster.port), "-U", "postgres", "gpuwright")
        gpuwright(cluster, "migrate")

        server = RunningServer(cluster.url, folder, SETTINGS)
        stack.callback(server.kill)
        agent = AgentProcess(server, folder / "node", 3, "node-1")
        stack.callback(agent.close)
        agent.start()
        assert server.request("POST", "/api/v1/apply", world()).status == 200
        planners = [PlannerProcess(cluster.url, folder, "first", SETTINGS)]
        stack.callback(close, planners)
        until(lambda: len(agent.copies()) >= 2, f"not served, see {folder}")
        cluster.run(tools / "base-backup", cluster.admin, backup)

        writer = Writer(server)
        writer.start()
        stack.callback(writer.ending.set)
        time.sleep(seconds / 2)
        kept = len(writer.acknowledged)
        moment = now(cluster)
        time.sleep(0.2)
        begun = len(writer.acknowledged) + 1
        planners[0].close()  # another epoch, and a third instance, of which the moment knows nothing
        planners.append(PlannerProcess(cluster.url, folder, "second", SETTINGS))
        copies = set(agent.copies())
        until(lambda: epoch(cluster) > 1, "the second planner does not lead")
        assert server.request("POST", "/api/v1/apply", wanting(3)).status == 200
        until(lambda: len(agent.copies()) == 3, "the second planner plans nothing")
        time.sleep(seconds / 2)
        before = seen(agent)
        cluster.die()
        lost_at = time.monotonic()
        writer.ending.set()
        writer.join(patience())
        server.kill()
        planners[1].close()

        # As far as the archive goes: what is lost is what the machine had not sent away.
        cluster.run(tools / "restore-to", backup, cluster.data)
        cluster.start()
        restored_at = time.monotonic()
        found = tenants(cluster)
        acknowledged = [(name, at) for name, at in writer.acknowledged if at <= lost_at]
        missing = [at for name, at in acknowledged if name not in found]

        # To the moment: in the same way, into another folder.
        cluster.die()
        cluster.run(tools / "restore-to", backup, cluster.data, moment)
        cluster.start()
        found = tenants(cluster)
        wrong = [name for name, _ in writer.acknowledged[:kept] if name not in found]
        wrong += [name for name, _ in writer.acknowledged[begun:] if name in found]
        server.restart()
        heard = agent.said_log().count("took assignment")
        time.sleep(4.0)  # it reports, and asks for what it should run
        refused = seen(agent) == before and agent.said_log().count("took assignment") == heard
        gpuwright(cluster, "leap")
        planners.append(PlannerProcess(cluster.url, folder, "third", SETTINGS))
        until(lambda: epoch(cluster) > LEAP_BY + before[0] - 1, "nobody leads")
        until(lambda: set(agent.copies()) == copies, f"the agent believes nobody, see {folder}")
        assert server.request("POST", "/api/v1/apply", wanting(3)).status == 200
        until(lambda: len(agent.copies()) == 3, f"nothing is planned, see {folder}")
        return Outcome(
            len(acknowledged), len(missing), lost_at - min(missing, default=lost_at), restored_at - lost_at,
            time.monotonic() - lost_at, wrong, before, refused, seen(agent), copies < set(agent.copies()),
        )  # fmt: skip


def close(planners: list[PlannerProcess]) -> None:
    for planner in planners:
        planner.close()


def gpuwright(cluster: Cluster, action: str) -> None:
    words = [sys.executable, "-m", "cli.main", "db", action]
    subprocess.run(
        words, cwd=ROOT, env={"DATABASE_URL": cluster.url, "PATH": "/usr/bin:/bin"}, check=True, timeout=patience()
    )


def wanting(instances: int) -> list[dict[str, Any]]:
    """The world, with so many instances at least of its service."""
    made = world()
    made[-1]["spec"]["minInstances"] = instances
    return made


def epoch(cluster: Cluster) -> int:
    with psycopg.connect(cluster.url) as connection:
        [(found,)] = connection.execute("SELECT epoch FROM lease").fetchall() or [(0,)]
        return int(found)


def seen(agent: AgentProcess) -> tuple[int, int]:
    """The highest epoch and generation that the agent has seen, as it has them on disk."""
    known = StateFolder(agent.folder).memory()
    return known.epoch, known.generation


def now(cluster: Cluster) -> str:
    with psycopg.connect(cluster.url) as connection:
        [(moment,)] = connection.execute("SELECT clock_timestamp()").fetchall()
        return str(moment.isoformat())


def tenants(cluster: Cluster) -> set[str]:
    with psycopg.connect(cluster.url) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM object WHERE kind = 'Tenant'")}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--archive-seconds", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=180.0)
    args = parser.parse_args()
    with TemporaryDirectory() as name:
        outcome = disaster(Path(name), args.archive_seconds, args.seconds)
    print(
        f"{outcome.acknowledged} writes acknowledged, {outcome.lost} lost: those of the last "
        f"{outcome.lost_seconds:.1f} s (archive_timeout {args.archive_seconds}); writable again after "
        f"{outcome.restore_seconds:.1f} s, planned again {outcome.whole_seconds:.1f} s after the loss, "
        f"two restores; wrong at the moment: {len(outcome.wrong_at_the_moment)}"
    )
    print(json.dumps({"before": outcome.seen_before, "after": outcome.seen_after, "refused": outcome.refused}))
    return int(bool(outcome.wrong_at_the_moment) or not outcome.refused)


if __name__ == "__main__":
    sys.exit(main())
