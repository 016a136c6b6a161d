"""A whole control plane whose copies are pods: everything is struck, taken away or out of reach, under requests."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.kubernetes.nodes import RunningCluster
from tests.proofs.ledger import Journals, judged_by_journals
from tests.proofs.pods.faults import TAINTS
from tests.proofs.pods.judge import PodJudge
from tests.proofs.pods.siege import besiege, end_all, pod_town, pods_of, settle
from tests.proofs.town import RATE, SERVICE, Town, agent_words, world
from tests.support.load import steady_load
from tests.support.patience import until
from tests.support.postgres import DatabaseServer
from tests.support.server import RunningServer
from tests.support.soak import scaled

pytestmark = pytest.mark.slow

EVENTS = "SELECT last_at, reason, name, message FROM event ORDER BY id DESC LIMIT 12"
PATH = f"/shop/{SERVICE}/v1/models/stub:infer"


@pytest.mark.timeout(7200)
def test_after_any_faults_all_is_as_planned_paid_for_and_nothing_is_left_over(
    pod_cluster: RunningCluster, postgres: DatabaseServer, tmp_path: Path
) -> None:
    url = postgres.create()
    with pod_town(pod_cluster, url, tmp_path, 4) as made:
        journals = Journals(made)
        seen = besiege(made, scaled(1000, 12), 1, journals)
        assert seen.unexplained == []
        assert (seen.broken, seen.lost) == ([], [])
        assert made.out_of_order() == []
        assert end_all(made) == []
        verdict = judged_by_journals(made, journals, url)
    postgres.drop(url)
    assert (verdict.wrong, verdict.unmarked) == ([], 0)


@pytest.mark.timeout(2400)
def test_while_the_api_server_is_away_all_serve_nothing_new_is_ready_and_then_all_is_as_planned(
    pod_cluster: RunningCluster, postgres: DatabaseServer, tmp_path: Path
) -> None:
    url = postgres.create()
    with pod_town(pod_cluster, url, tmp_path, 4) as made:
        judge = PodJudge(made, pods_of(made))
        settle(judge, "at first")
        with steady_load(made.gateway.port, PATH, rate_per_second=RATE, method="POST", body="{}") as load:
            before = made.running()
            with pod_cluster.server.away():
                ask_for(made.servers[0], minInstances=3)
                made.agents[0].end(signal.SIGKILL)
                made.agents[0].start(*agent_words(made.gateway))
                until(lambda: made.rows("SELECT 1 FROM assigned WHERE withdrawn_at IS NULL LIMIT 1 OFFSET 2"), "a plan")
                ends = time.monotonic() + scaled(600, 10)
                while time.monotonic() < ends:
                    assert made.running() == before, "those go on, and no other starts"
                    load.await_answers(10)
            # A rollout that waited for too long was undone; the next plan begins it again.
            until(lambda: len(made.running()) == 3, lambda: str(made.rows(EVENTS)), scaled(600, 120))
            settle(judge, "once it is back")
            load.await_answers(10)
            outcome = load.stop()
        assert outcome.failed == ()
    postgres.drop(url)


def test_two_nodes_that_are_taken_away_at_once_are_emptied_and_what_the_rest_cannot_serve_is_said(
    pod_cluster: RunningCluster, postgres: DatabaseServer, tmp_path: Path
) -> None:
    url = postgres.create()
    with pod_town(pod_cluster, url, tmp_path, 4) as made:
        judge = PodJudge(made, pods_of(made))
        settle(judge, "at first")
        with steady_load(made.gateway.port, PATH, rate_per_second=RATE, method="POST", body="{}") as load:
            taken = find_used(made)
            assert len(taken) == 2
            for node, taint in zip(taken, TAINTS, strict=True):
                pod_cluster.kubectl("taint", "nodes", node, f"{taint}=:NoSchedule")
            until(lambda: set(taken).isdisjoint(find_used(made)), "both are emptied")
            settle(judge, "without them")
            ask_for(made.servers[0], ratePerSecond=900.0, minInstances=1)  # of which one GPU serves 533
            until(lambda: find_shares(made) >= 100, "the plan has room for it")
            settle(judge, "with more to serve")
            rest = find_used(made)
            assert len(rest) == 2
            pod_cluster.kubectl("taint", "nodes", rest[0], f"{TAINTS[0]}=:NoSchedule")
            short = "SELECT message FROM event WHERE reason = 'reclaim_short' AND name = 'search'"
            until(lambda: made.rows(short), "an event names the shortfall")
            settle(judge, "without a third")
            assert find_used(made) == rest, "the old copy serves until its node is gone"
            load.await_answers(30)
            assert load.stop().failed == ()
        ((message,),) = made.rows(short)
        assert f"without node {rest[0]}, 366.667 requests/s of shop/search would not be served" in message
    postgres.drop(url)


def find_used(made: Town) -> list[str]:
    """Returns the nodes that run copies."""
    return sorted(agent.node for agent in made.agents if agent.copies())


def find_shares(made: Town) -> float:
    """Returns the share of GPUs that all planned instances have together."""
    (row,) = made.rows("SELECT coalesce(sum(sm_percent), 0) AS share FROM assigned WHERE withdrawn_at IS NULL")
    return float(row.share)


def ask_for(server: RunningServer, **spec: object) -> None:
    """Declares the service again."""
    service = dict(world()[-1])
    service["spec"] = {**service["spec"], **spec}
    assert server.request("POST", "/api/v1/apply", [service]).status == 200
