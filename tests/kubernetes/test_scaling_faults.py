"""Many writes through a proxy that loses, delays and refuses them, while others write and planners end or are paused.

What happened is judged by every version that the workload had, as the API server tells it, and by the audit log.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from clusters.estate import OURS
from clusters.kubeconfigs import choose_cluster, connect
from clusters.scaling.outcomes import OpenWrite, WriteState
from clusters.scaling.writing import settle_write, write_replicas
from tests.clusters.made_up import autoscaler
from tests.kubernetes.fault_proxy import Fault, FaultProxy, faulty_proxy
from tests.kubernetes.object_history import ObjectHistory, Version
from tests.kubernetes.scaled import Scaler, ScalingServer, adopted_deployment
from tests.support.soak import scaled

pytestmark = pytest.mark.slow

QUIET = timedelta(minutes=10)
ANSWER_SECONDS = 0.5  # what takes longer is lost
FAULTS = tuple(Fault)
MOST = 16


class Killed(Exception):
    """A planner ends here."""


@dataclass
class Plan:
    """What a planner decided on the workload as it read it, and what it knows of its write."""

    number: int
    read_at: str  # version
    generation: int
    current: int
    replicas: int
    is_held: bool
    began: datetime
    allowed: list[str] = field(default_factory=list)  # versions at which the database let it write
    state: WriteState | None = None  # None: it ended before it knew


@dataclass
class Database:
    """What stands in Postgres: who leads, all plans, and the write that has no answer."""

    leader: int = 0
    plans: list[Plan] = field(default_factory=list)
    open: OpenWrite | None = None


class Others:
    """Everybody else who writes to the workload, past the proxy."""

    def __init__(self, admin: Path, place: str, clock: Callable[[], datetime]) -> None:
        self._client = connect(choose_cluster(None, str(admin), {}))
        self._place, self._clock = place, clock
        self._path = f"/apis/apps/v1/namespaces/{place}/deployments/ranker"
        self._hpas = f"/apis/autoscaling/v2/namespaces/{place}/horizontalpodautoscalers"
        self.has_hpa = False
        self.scaled_at: dict[str, datetime] = {}  # by version
        self._count = 0

    def act(self, draw: Random) -> None:
        draw.choice((*(self.scale,) * 4, self.relabel, self.set_image, self.change_mode))(draw)

    def scale(self, draw: Random) -> None:
        now = self.read()["spec"]["replicas"]
        metadata = {"name": "ranker", "namespace": self._place}
        spec = {"replicas": draw.choice([count for count in range(1, MOST + 1) if count != now])}
        given = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": spec}
        manager = draw.choice(("kubectl", "kube-controller-manager", "kubectl"))
        answer = self._client.put(f"{self._path}/scale", json=given, params={"fieldManager": manager})
        assert answer.status_code == 200
        self.scaled_at[answer.json()["metadata"]["resourceVersion"]] = self._clock()

    def relabel(self, draw: Random) -> None:
        """Moves the version and nothing else, as a status does."""
        self._patch({"metadata": {"labels": {"moved": str(draw.random())}}})

    def set_image(self, draw: Random) -> None:
        self._patch({"spec": {"template": {"metadata": {"labels": {"image": str(draw.random())}}}}})

    def change_mode(self, draw: Random) -> None:
        self._patch({"metadata": {"annotations": {f"{OURS}mode": draw.choice(("auto",) * 8 + ("advisory",))}}})

    def change_hpa(self, draw: Random) -> None:
        """Makes an HPA or deletes it: that is another object, and moves no version of the workload."""
        if not self.has_hpa:
            assert self._client.post(self._hpas, json=autoscaler(self._place, "ranker", 1, 99)).status_code == 201
        else:
            assert self._client.delete(f"{self._hpas}/ranker").status_code == 200
        self.has_hpa = not self.has_hpa

    def read(self) -> Any:
        return self._client.get(self._path).json()

    def delete(self) -> None:
        assert self._client.delete(self._path).status_code == 200

    def _patch(self, given: object) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        answer = self._client.patch(self._path, json=given, headers=headers, params={"fieldManager": "kubectl-edit"})
        assert answer.status_code == 200, answer.text


class Planner:
    """One scaler's process, as far as it concerns this workload."""

    def __init__(self, number: int, fleet: Fleet) -> None:
        self.number, self.fleet = number, fleet
        self.scaler = Scaler(fleet.kubeconfig, fleet.place)

    def cycle(self, interrupt: Callable[[], None] = lambda: None) -> None:
        """Settles what is open, decides, and writes; `interrupt` comes between the database's word and the write."""
        fleet, database = self.fleet, self.fleet.database
        with self.scaler.server(ANSWER_SECONDS) as server:
            if database.open:
                if settle_write(server, database.open).is_open:
                    return
                database.open = None
            found = self.scaler.find()["ranker"]
            version = fleet.others.read()["metadata"]["resourceVersion"]
            wanted = found.bound(fleet.draw.choice((found.replicas, *(fleet.draw.randint(0, MOST) for _ in range(4)))))
            plan = Plan(
                len(database.plans), version, found.generation, found.replicas, wanted.replicas, bool(found.hold),
                fleet.proxy.now,
            )  # fmt: skip
            database.plans.append(plan)
            if wanted.replicas == found.replicas or found.hold:
                return

            def may_write(version: str) -> bool:
                if database.leader != self.number:
                    return False
                plan.allowed.append(version)
                database.open = OpenWrite(found.name, found.generation, version, wanted.replicas)
                plan.is_held = fleet.others.has_hpa
                interrupt()
                return True

            outcome = write_replicas(server, wanted, may_write)
        plan.state = outcome.state
        if database.leader == self.number and not outcome.is_open:
            database.open = None


class Fleet:
    """A workload, its planners, everybody else, and what is between them and the API server."""

    def __init__(self, scaling_server: ScalingServer, place: str, proxy: FaultProxy, folder: Path, seed: int) -> None:
        token = json.loads(scaling_server.user.kubeconfig.read_text())["users"][0]["user"]["token"]
        self.kubeconfig = proxy.kubeconfig(folder / "through-proxy", token)
        self.place, self.proxy, self.draw = place, proxy, Random(seed)
        self.database = Database()
        self._deck: list[Fault] = []  # each fault comes as often as any other
        self.others = Others(scaling_server.server.admin, place, lambda: proxy.now)
        self.planner = Planner(0, self)

    def run(self, rounds: int) -> None:
        meanwhile = (*(self.nothing,) * 4, self.others_act, self.kill, self.take_over, self.take_over)
        for _ in range(rounds):
            self.proxy.ahead += timedelta(minutes=self.draw.choice((0, 4, 9.5, 11, 11)))
            if self.draw.random() < 0.12:
                self.others.act(self.draw)
            if self.draw.random() < (0.5 if self.others.has_hpa else 0.04):
                self.others.change_hpa(self.draw)
            if self.draw.random() < 0.4:
                self.proxy.deliver_late()
            self.proxy.choose = self._fault
            try:
                self.planner.cycle(self.draw.choice(meanwhile))
            except Killed:
                self._elect()
            self.proxy.choose = lambda method, path: None
        self.proxy.deliver_late()

    def _fault(self, method: str, path: str) -> Fault | None:
        is_listed = "/namespaces/" not in path  # of the whole cluster
        if is_listed or self.draw.random() > 0.2:
            return None
        if not self._deck:
            self._deck = self.draw.sample(FAULTS, len(FAULTS))
        return self._deck.pop()

    def nothing(self) -> None:
        pass

    def others_act(self) -> None:
        self.others.act(self.draw)

    def kill(self) -> None:
        raise Killed

    def take_over(self) -> None:
        """The planner is paused, another leads and has its cycle, and then the first one wakes."""
        faults, self.proxy.choose = self.proxy.choose, lambda method, path: None
        self._elect()
        self.planner.cycle()
        self.proxy.choose = faults

    def _elect(self) -> None:
        self.database.leader += 1
        seen = self.planner.scaler.seen
        self.planner = Planner(self.database.leader, self)
        self.planner.scaler.seen = dict(seen)


def judge(history: list[Version], fleet: Fleet) -> Counter[str]:
    """Asserts what may never be, and counts what was."""
    places = {version.version: place for place, version in enumerate(history)}
    plans, counts, newest = fleet.database.plans, Counter[str](), -1
    written: Counter[int] = Counter()
    ours: set[tuple[int, int]] = set()  # generation before, and replicas after
    for place, (before, after) in enumerate(pairwise(history), 1):
        if after.replicas == before.replicas:
            continue
        if after.managers != ("gpuwright",):
            counts["changes by others"] += 1
            continue
        counts["writes"] += 1
        decided = [plan for plan in plans if before.version in plan.allowed and plan.replicas == after.replicas]
        assert decided, f"nobody decided {before} to {after}"
        plan = decided[-1]
        assert (plan.generation, plan.current) == (before.generation, before.replicas), "an update is lost"
        assert before.mode == "auto" and not plan.is_held, "a held workload is written"
        assert 1 <= after.replicas <= max(2 * before.replicas, before.replicas + 4), "a step is too long"
        assert plan.number > newest, "an older plan is written over a newer one"
        newest = plan.number
        kept = [other for other in plans if other.number > plan.number and places.get(other.read_at, place) < place]
        assert not kept, "an older plan is written after a newer one was decided on the version before"
        others = [time for version, time in fleet.others.scaled_at.items() if places.get(version, place) < place]
        assert all(plan.began - time >= QUIET for time in others), f"{plan} {sorted(others)[-1]}"
        written[plan.number] += 1
        ours.add((before.generation, after.replicas))
    for plan in plans:
        counts[f"outcome {plan.state}"] += bool(plan.allowed)
        assert written[plan.number] <= 1
        if plan.state == "not written":
            assert not written[plan.number], plan
        elif plan.state == "written":  # after a lost answer it may be a newer plan that wrote the same
            assert (plan.generation, plan.replicas) in ours, plan
    return counts


def test_no_update_is_lost_no_older_plan_is_written_and_nobody_is_disturbed_whatever_the_network_does(
    scaling_server: ScalingServer, tmp_path: Path
) -> None:
    audit, began = scaling_server.server.audit, scaling_server.server.audit.mark()
    with scaling_server.namespace() as place, faulty_proxy(scaling_server.server.admin) as proxy:
        scaling_server.put(place, adopted_deployment("ranker", 3, max_replicas=str(MOST)))
        history = ObjectHistory(scaling_server.server.admin, place, "ranker")
        fleet = Fleet(scaling_server, place, proxy, tmp_path, seed=50)
        fleet.run(scaled(soak=1000, everyday=150, fast=150))
        fleet.others.delete()
        history.close()
        counts = judge(history.versions, fleet)
    met = Counter(fault for _, fault in proxy.met)
    assert set(met) == set(Fault)
    assert counts["writes"] >= 15 and counts["changes by others"] >= 3
    wrote = {(each.verb, each.resource) for each in audit.writes(scaling_server.user.name, began)}
    assert wrote == {("update", "deployments/scale"), ("patch", "deployments/scale")}
