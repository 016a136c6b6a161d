"""Many plans by real scalers that are killed, paused, cut off and disturbed: nothing is lost and nothing taken back."""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

import psycopg
import pytest

from app.store.database.urls import libpq_url
from app.store.plans.scale_rows import ScalePlan
from tests.clusters.made_up import autoscaler
from tests.kubernetes.fault_proxy import AFTER, HANGING, REFUSED, Fault, FaultProxy, faulty_proxy
from tests.kubernetes.scale_judge import ScaleJudge, read_rows
from tests.kubernetes.scaled import Item, ScalingServer, adopted_deployment
from tests.kubernetes.scalers import LEASE_SECONDS, ScaledPlace, ScalerProcess, scaled_place
from tests.support.patience import until
from tests.support.soak import scaled

log = logging.getLogger(__name__)
pytestmark = pytest.mark.slow

SCALERS = 3
MOST = 12
NAMES = tuple(f"w{number}" for number in range(scaled(16, 5)))
LOST = tuple(fault for fault in (*AFTER, Fault.CUT_BEFORE, Fault.LATE) if fault not in HANGING)
LEADER = "SELECT split_part(holder, ':', 2) FROM lease WHERE name = 'scaler' AND expires_at > clock_timestamp()"


class Trouble:
    """What goes wrong, drawn for each request of a scaler; a paused one is woken once another has led."""

    def __init__(self, place: ScaledPlace, proxy: FaultProxy, seed: int) -> None:
        self._place, self._proxy, self._draw = place, proxy, Random(seed)
        token = json.loads(place.server.user.kubeconfig.read_text())["users"][0]["user"]["token"]
        self._kubeconfig = proxy.kubeconfig(place.folder / "proxied.kubeconfig", token)
        self.scalers: list[ScalerProcess] = []
        self._paused: dict[int, float] = {}
        self.met: Counter[str] = Counter()

    def keep_running(self) -> None:
        """Replaces scalers that were killed, and wakes those that have been paused past their lease."""
        self.scalers = [each for each in self.scalers if each.is_alive()]
        while len(self.scalers) < SCALERS:
            self.scalers.append(self._place.start(self._kubeconfig))
        for pid, since in list(self._paused.items()):
            if time.monotonic() - since > 2 * LEASE_SECONDS:
                self._signal(pid, signal.SIGCONT)
                del self._paused[pid]

    def choose(self, method: str, path: str) -> Fault | None:
        """Returns the fault of a request; a leader may be killed or paused when its write is on the way."""
        drawn = self._draw.random()
        if method == "GET":
            return Fault.UNAVAILABLE if drawn < 0.004 else None
        if drawn < 0.15:
            return self._draw.choice(LOST)
        if drawn < 0.3:
            return self._draw.choice(REFUSED)
        if drawn < 0.4:
            return self._stop(signal.SIGKILL)
        if drawn < 0.5:
            return self._stop(signal.SIGSTOP)
        return None

    def _stop(self, number: signal.Signals) -> Fault | None:
        """Stops the leader; its write has gone out, or is delivered much later."""
        if len(self._paused) == SCALERS - 1:
            return None
        with psycopg.connect(libpq_url(self._place.url)) as connection:
            found = connection.execute(LEADER).fetchone()
        if found:
            self._signal(int(found[0]), number)
            self.met[number.name] += 1
            if number is signal.SIGSTOP:
                self._paused[int(found[0])] = time.monotonic()
        return self._draw.choice((None, Fault.LATE, Fault.CUT_BEFORE))

    def _signal(self, pid: int, number: signal.Signals) -> None:
        if pid in {each.pid for each in self.scalers if each.is_alive()}:
            os.kill(pid, number)

    def end(self) -> None:
        """No more faults: what was held back arrives, and everybody is awake."""
        self._proxy.choose = lambda method, path: None
        for pid in self._paused:
            self._signal(pid, signal.SIGCONT)
        self._paused.clear()
        self.keep_running()
        for status in self._proxy.deliver_late():
            self.met[f"late: {status}"] += 1


@pytest.fixture
def place(scaling_server: ScalingServer, database_url: str, tmp_path: Path) -> Iterator[ScaledPlace]:
    with scaled_place(scaling_server, database_url, tmp_path, NAMES) as found:
        yield found


@pytest.mark.timeout(3600)
def test_no_update_is_lost_no_older_plan_follows_a_newer_one_and_others_are_left_in_peace(place: ScaledPlace) -> None:
    workloads = {name: adopted_deployment(name, 3) for name in NAMES}
    place.put(*workloads.values())
    began, draw = place.server.server.audit.mark(), Random(7)
    with faulty_proxy(place.server.server.admin) as proxy:
        trouble = Trouble(place, proxy, seed=7)
        trouble.keep_running()
        until(lambda: len(place.rows()) == len(workloads), "the first plan")
        proxy.choose = trouble.choose
        disturbed: set[str] = set()
        while (plan := place.plan()) and len(plans_of(place)) < scaled(100, 10):
            disturb(place, workloads, disturbed, draw)
            name, number = draw.choice(sorted(workloads)), draw.randint(1, MOST)
            place.annotate(workloads[name], min_replicas=str(number), max_replicas=str(number))
            until(partial(moved, place, trouble, plan), lambda: [each.lines()[-5:] for each in trouble.scalers])
            if draw.random() < 0.3:
                for status in proxy.deliver_late():
                    trouble.met[f"late: {status}"] += 1
        trouble.end()
        until(lambda: is_settled(place), place.states)
        assert [each.end() for each in trouble.scalers] == [0] * SCALERS
    written = place.server.server.audit.scaled(place.namespace, began)
    judge = ScaleJudge(place.server.user.name, written, read_rows(place.url), dict.fromkeys(workloads, 3))
    faults = Counter(fault.name for _, fault in proxy.met)
    figures = {**judge.figures(), "disturbed": len(disturbed), **trouble.met, **faults}
    log.info("figures: %s", json.dumps(figures))
    found = list(judge.violations())
    assert found == [], "\n".join(found)
    assert judge.figures()["writes"] > 0


def disturb(place: ScaledPlace, workloads: dict[str, Item], disturbed: set[str], draw: Random) -> None:
    """Another manager scales a workload, by hand or by an HPA; half of the workloads are left alone."""
    left = sorted(workloads)[len(workloads) // 2 :]
    if draw.random() > 0.25:
        return
    name = draw.choice(left)
    if name in disturbed or draw.random() < 0.6:
        place.server.scale(place.namespace, f"deployment/{name}", draw.randint(1, MOST))
    else:
        place.server.put(place.namespace, autoscaler(place.namespace, name, MOST + 1, MOST + 2))
    disturbed.add(name)


def plans_of(place: ScaledPlace) -> list[int]:
    with psycopg.connect(libpq_url(place.url)) as connection:
        return [row[0] for row in connection.execute("SELECT generation FROM scale_plan")]


def moved(place: ScaledPlace, trouble: Trouble, before: ScalePlan) -> bool:
    """Tells whether the plan has been made anew or confirmed."""
    trouble.keep_running()
    plan = place.plan()
    return bool(plan and (plan.generation, plan.confirmed_at) != (before.generation, before.confirmed_at))


def is_settled(place: ScaledPlace) -> bool:
    states = {row.state for row in read_rows(place.url)}
    newest = set(place.states().values())
    return "writing" not in states and not newest & {"approved", "overtaken"}
