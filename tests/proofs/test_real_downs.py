"""What keeps a copy from running, with real processes: it is told in time, it moves, and requests are counted.

Times are the product's own: those of its events, and those at which Prometheus found the expression of an alert true.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from agents.keeper.steps import CHECK_SECONDS, PATIENCE_CHECKS
from scripts.alerts import ALERTS
from tests.proofs.breakable_fleet import MODEL, TENANT, BreakableFleet, Event, Place, breakable_fleet
from tests.proofs.breaking import FAULTS, Mend, list_crashes
from tests.support.load import Load, Outcome, steady_load
from tests.support.patience import patience
from tests.support.postgres import DatabaseServer
from tests.support.soak import SOAK

pytestmark = [
    pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.needs("prometheus", "prometheus"),
    pytest.mark.needs("haproxy", "haproxy"),
]  # fmt: skip

DOWN_SECONDS = 20.0 if SOAK else 3.0
PROBE_SECONDS = CHECK_SECONDS + PATIENCE_CHECKS  # the agent asks a copy, and asks again each second
TOLD_SECONDS = DOWN_SECONDS + PROBE_SECONDS + 10.0
NAMING = ("instance_down", "copies_missing", "gpu_failed")  # the reasons of events that say what does not run
RATE = 10.0
REQUEST_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Told:
    """What is to be said of a fault: words of the first event about it, and the alert whose expression is true."""

    words: str
    alert: str = "ServiceDown"


KINDS = {
    "crash_loop": Told("went down 3 times: exited"),
    "hung": Told("unresponsive: 3 checks in a row failed"),
    "never_warm": Told("not_warm: /healthz answered 503"),
    "out_of_memory": Told("CUDA error 2"),
    "no_gpu": Told("GPU 1 is failed or fenced", "NodeMismatch"),
    "no_template": Told("no_template: this node has no template breakable"),
    "mps_down": Told("GPU 0 is failed or fenced"),
    "port_taken": Told("cannot listen on"),
}


@dataclass(frozen=True, slots=True)
class Struck:
    """A place that was broken, when, and what ends it."""

    place: Place
    at: float
    mend: Mend


@pytest.fixture(scope="module")
def fleet(postgres: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BreakableFleet]:
    url = postgres.create()
    with breakable_fleet(url, tmp_path_factory.mktemp("breaking"), DOWN_SECONDS) as made:
        yield made
    postgres.drop(url)


@contextmanager
def struck(fleet: BreakableFleet, kind: str, gpu: int = 0) -> Iterator[tuple[Struck, Load]]:
    """A service of the kind's name whose place is broken while requests come; it is mended at the end."""
    name = kind.replace("_", "-")
    path = f"/{TENANT}/{name}/v1/models/{MODEL}:infer"
    with (
        fleet.served(name, gpu) as place,
        steady_load(
            fleet.gateway.port,
            path,
            rate_per_second=RATE,
            connections=128,
            method="POST",
            body="{}",
            timeout_seconds=REQUEST_SECONDS,
        ) as load,
    ):
        fleet.until(lambda: "ServiceDown" not in true_alerts(fleet, time.time()), "metrics say that it is served")
        at = time.time()
        mend = FAULTS[kind](fleet, place)
        try:
            yield Struck(place, at, mend), load
        finally:
            mend()


def find_told(fleet: BreakableFleet, fault: Struck, name: str, words: str) -> Event | None:
    """Returns the first event that says this of the service or of its node."""
    about = (f"Service {name}", f"Node {fault.place.node}")
    found = (event for event in fleet.events(fault.at) if event.reason in NAMING and event.what in about)
    return next((event for event in found if words in event.message), None)


def true_alerts(fleet: BreakableFleet, since: float) -> dict[str, Sequence[float]]:
    """Returns the moments since then at which the expression of each alert was true, of those that are."""
    found = {alert.name: fleet.prometheus.query(alert.expr, since, time.time()) for alert in ALERTS}
    return {name: moments for name, moments in found.items() if moments}


def print_figures(kind: str, struck: Struck, told: Event, alerts: dict[str, Sequence[float]], outcome: Outcome) -> None:
    began = struck.at
    seen = ", ".join(f"{name} {when[0] - began:.0f}..{when[-1] - began:.0f} s" for name, when in alerts.items())
    print(
        f"{kind}: {told.reason} after {told.at - began:.1f} s; {seen}; "
        f"{len(outcome.failed)} of {len(outcome.samples)} requests failed; {told.message[:300]}"
    )


@pytest.mark.parametrize("kind", KINDS if SOAK else ("out_of_memory", "no_gpu"))
def test_what_a_place_cannot_run_any_more_is_told_in_time_and_served_from_elsewhere(
    fleet: BreakableFleet, kind: str
) -> None:
    name, expected = kind.replace("_", "-"), KINDS[kind]
    with struck(fleet, kind, gpu=1 if kind == "no_gpu" else 0) as (fault, load):
        fleet.until(lambda: fleet.place(name) not in (None, fault.place), "it has moved")
        served = time.monotonic() + REQUEST_SECONDS  # until the last request to the old copy is given up
        fleet.until(lambda: expected.alert in true_alerts(fleet, fault.at), "the expression of its alert is true")
        fleet.until(lambda: time.monotonic() > served + 1.0, "requests were answered there")
        alerts = true_alerts(fleet, fault.at)
        told = find_told(fleet, fault, name, expected.words)
        outcome = load.stop()
        rejected = sum(sample.status >= 500 for sample in outcome.samples)
        fleet.until(lambda: fleet.missed(name) >= rejected, "requests that failed are counted")
    assert told, fleet.events(fault.at)
    print_figures(kind, fault, told, alerts, outcome)
    began = list_crashes(fleet, fault.place)[1] if kind == "crash_loop" else fault.at
    assert told.at - began <= patience(TOLD_SECONDS)
    assert alerts[expected.alert][0] - began <= patience(TOLD_SECONDS)
    answered = outcome.between(served, served + 1.0)
    assert answered.samples and not answered.failed


@pytest.mark.soak
def test_a_copy_that_is_killed_serves_again_in_its_place(fleet: BreakableFleet) -> None:
    with struck(fleet, "killed") as (fault, load):
        fleet.until(lambda: fleet.processes(fault.place), "it starts again")
        fleet.until(lambda: fleet.place("killed") == fault.place, "it is routed")
        served = time.monotonic() + 1.0
        fleet.until(lambda: time.monotonic() > served + 2.0, "requests were answered there")
        outcome = load.stop()
        print(
            f"killed: {true_alerts(fleet, fault.at)}, {len(outcome.failed)} of {len(outcome.samples)} requests failed"
        )
        assert find_told(fleet, fault, "killed", "has been down") is None, "it needs no other place"
    answered = outcome.between(served, served + 1.0)
    assert answered.samples and not answered.failed


@pytest.mark.soak
def test_a_service_whose_file_is_gone_is_named_as_the_cause_and_stays(fleet: BreakableFleet) -> None:
    with struck(fleet, "model_file_deleted") as (fault, load):
        name = "model-file-deleted"
        fleet.until(lambda: "ServiceSuspect" in true_alerts(fleet, fault.at), "it is the suspect")
        told = find_told(fleet, fault, name, "profile 'small.json' does not exist")
        assert told
        assert told.at - fault.at <= patience(TOLD_SECONDS)
        (suspect,) = [event for event in fleet.events(fault.at) if event.reason == "service_suspect"]
        assert "profile 'small.json' does not exist" in suspect.message
        print_figures("model_file_deleted", fault, told, true_alerts(fleet, fault.at), load.stop())
        print(f"  service_suspect after {suspect.at - fault.at:.1f} s: {suspect.message}")
        fault.mend()
        fleet.until(lambda: fleet.place(name) is not None, "it serves again")
