"""Records cycles of small fleets in virtual time: planner, fast lane, rollouts, agents' decisions and Postgres.

Only the questions are kept, and answered again by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from sqlalchemy import Connection

from app.control.decide.last_question import CycleResult
from app.manifests.offline import DeclaredFiles
from app.store.plans import plan_reads
from benchmarks.families import family
from benchmarks.manifests import manifests
from simulation.measure.run import set_auto
from simulation.own_database import own_database
from simulation.run import Simulation, open_simulation
from simulation.shapes import Shape, moving, noisy, spike, steady, wave
from simulation.spot import ReclaimRounds
from simulation.world import read_documents, read_files, set_policy
from tests.net.asking import FORKS
from tests.net.corpus import Row, Series, SeriesHead
from tests.net.moments import write_documents, write_moment
from tests.net.record_problems import PAPERS, Document, limit_power, limit_tenant, with_availability
from tests.proofs.campaign.world import documents as campaign_documents
from tests.simulation.chaos import Chaos

EXAMPLES = Path(__file__).parents[2] / "examples"
WORK, TICK_SECONDS = 20, 2.0
CYCLES_A_SERIES, SERIES_A_FLEET = 10, 2
CYCLE_SECONDS = 10  # less than usual, so that decisions follow each other closely
MOST_SECONDS = 600.0
FAILED = ("crashed", "out_of_time", "wrong")
SPIKE_SECONDS, RECLAIM_SECONDS, FAULT_SECONDS = 120.0, 120.0, 30.0
APPROVAL_SECONDS = 20.0  # a person looks at proposals so often
World: TypeAlias = Callable[[], DeclaredFiles]


@dataclass(frozen=True, slots=True)
class FleetToRecord:
    """A fleet, its load and what befalls it."""

    name: str
    world: World
    load: str
    tags: tuple[str, ...] = ()
    seed: int = 0
    policy: Mapping[str, Any] = field(default_factory=dict)
    has_faults: bool = False
    is_reclaimed: bool = False
    is_approved: bool = False


def _example(name: str) -> World:
    return lambda: read_files(EXAMPLES / f"{name}.yaml")


def _family(letter: str, gpus: int, services: int, *changes: Callable[[list[Document]], None]) -> World:
    def world() -> DeclaredFiles:
        documents = manifests(family(letter, gpus, services, 7))
        for change in changes:
            change(documents)
        return read_documents(documents)

    return world


def _two_tenants() -> DeclaredFiles:
    return read_documents(campaign_documents())


DEMO, TOKENS = _example("quickstart"), _example("llm")


def list_fleets() -> list[FleetToRecord]:
    """Returns the fleets whose cycles are recorded."""
    spread, spot = with_availability(spread="node"), _family("A", 16, 10, with_availability(maxSpotShare=0.5))
    jobs, tokens, approve = ("demo", "jobs"), ("language models", "jobs"), {"mode": "approve"}
    reclaimed, limited = ("availability", "spot"), _family("E", 16, 12, limit_tenant, limit_power)
    return [
        *(FleetToRecord(f"demo-{load}", DEMO, load, jobs) for load in ("steady", "moving", "spike", "wave")),
        *(FleetToRecord(f"tokens-{load}", TOKENS, load, tokens) for load in ("moving", "spike", "wave")),
        *(
            FleetToRecord(f"demo-{planner}", DEMO, "moving", (f"planner {planner}", *jobs), policy={"planner": planner})
            for planner in PAPERS
        ),
        *(FleetToRecord(f"demo-chaos-{n}", DEMO, "moving", ("chaos", *jobs), n, has_faults=True) for n in (1, 2, 3)),
        FleetToRecord("two-tenants-chaos", _two_tenants, "moving", ("chaos", "jobs"), 4, has_faults=True),
        FleetToRecord("two-tenants-steady", _two_tenants, "steady", ("chaos", "jobs"), 5, has_faults=True),
        FleetToRecord("demo-nodes", DEMO, "moving", ("node billing", *jobs), policy={"pricing": "node"}),
        FleetToRecord("demo-approve", DEMO, "spike", ("approval", *jobs), policy=approve),
        FleetToRecord("demo-approved", DEMO, "moving", ("approval", *jobs), policy=approve, is_approved=True),
        FleetToRecord("spread", _family("F", 24, 14, spread), "moving", ("availability", "jobs")),
        FleetToRecord("reclaimed", spot, "moving", reclaimed, is_reclaimed=True),
        FleetToRecord("reclaimed-steady", spot, "steady", reclaimed, 1, is_reclaimed=True),
        FleetToRecord("limits", limited, "moving", ("tenant limit", "power budget")),
        FleetToRecord("large", _family("A", 60, 30), "moving", ("large",)),
    ]


def draw_cycles(processes: int) -> Iterator[Series]:
    """Yields the series of every fleet; so many fleets run at a time."""
    with ProcessPoolExecutor(processes, FORKS) as pool:
        for found in pool.map(record_fleet, range(len(list_fleets()))):
            yield from found


def record_fleet(number: int) -> list[Series]:
    """Runs a fleet until enough of its cycles are recorded."""
    fleet = list_fleets()[number]
    world = set_policy(set_auto(fleet.world()), {"cycleSeconds": CYCLE_SECONDS, **fleet.policy})
    shapes = dict(_list_shapes(world, fleet))
    with (
        own_database("gpuwright-net-", lambda line: None) as url,
        open_simulation(url, world, shapes, seed=fleet.seed, work=WORK) as simulation,
    ):
        recorder = CycleRecorder(simulation)
        simulation.fleet.patient = True
        chaos = Chaos(simulation, fleet.seed) if fleet.has_faults else None
        reclaims = ReclaimRounds(simulation, RECLAIM_SECONDS, fleet.seed) if fleet.is_reclaimed else None
        struck_at, looks_at = 2 * FAULT_SECONDS, APPROVAL_SECONDS
        while len(recorder.moments) < CYCLES_A_SERIES * SERIES_A_FLEET and simulation.clock.seconds < MOST_SECONDS:
            recorder.look_ahead()
            if reclaims:
                reclaims.tick()
            if chaos and simulation.clock.seconds >= struck_at:
                struck_at += FAULT_SECONDS
                chaos.strike()
            if fleet.is_approved and simulation.clock.seconds >= looks_at:
                looks_at += APPROVAL_SECONDS
                simulation.database.write(_approve_newest)
            (chaos or simulation).advance(TICK_SECONDS, TICK_SECONDS)
            recorder.look_back()
    return list(_divide(fleet, recorder))


def _approve_newest(connection: Connection) -> None:
    if generation := plan_reads.newest_waiting(connection):
        plan_reads.change_state(connection, generation, ["proposed"], "rolling", "a person")


class CycleRecorder:
    """Keeps what each cycle of a simulation knew."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._cycles, self._waited = 0, False
        self._reason = "cycle"
        self.moments: list[Row] = []
        self.documents: list[list[Row]] = []  # declared at each moment

    def look_ahead(self) -> None:
        """Notes what will have called for the next cycle."""
        self._reason = str(self._simulation.planner.called_for or "cycle")

    def look_back(self) -> None:
        """Keeps the question of a cycle, if one ran since the last call."""
        result = self._simulation.last
        if self._simulation.cycles == self._cycles:
            return
        self._cycles = self._simulation.cycles
        if result is not None and result.snapshot is not None:
            self._keep(result)

    def _keep(self, result: CycleResult) -> None:
        """Keeps the question, but of cycles in turn that only waited the first one alone."""
        assert result.snapshot is not None
        outcome = str(result.outcome)
        waited, self._waited = self._waited, result.decision is None and outcome not in FAILED
        if waited and self._waited:
            return
        self.documents.append(write_documents(result.snapshot.declared))
        before = self.documents[-2] if len(self.moments) % CYCLES_A_SERIES else self.documents[-1]
        self.moments.append(
            write_moment(
                result.snapshot,
                before,
                reason=self._reason,
                solver=outcome if outcome in FAILED else "",
            )
        )


def _divide(fleet: FleetToRecord, recorder: CycleRecorder) -> Iterator[Series]:
    for first in range(0, len(recorder.moments), CYCLES_A_SERIES):
        head = SeriesHead("cycles", (*fleet.tags, f"load {fleet.load}"), WORK, fleet.seed, recorder.documents[first])
        name = f"cycles-{fleet.name}-{1 + first // CYCLES_A_SERIES}"
        yield Series(name, head, recorder.moments[first : first + CYCLES_A_SERIES])


def _list_shapes(world: DeclaredFiles, fleet: FleetToRecord) -> Iterator[tuple[str, Shape]]:
    names = sorted(f"{key.tenant}/{key.name}" for key in world.manifests if key.kind == "Service")
    for number, name in enumerate(names):
        shape = {
            "steady": steady,
            "moving": moving(f"{fleet.seed} {name}", depth=0.4, period_seconds=400.0),
            "spike": spike(SPIKE_SECONDS, hold_seconds=150.0) if number % 4 == 0 else steady,
            "wave": wave(0.3, 1.2, 400.0, number / len(names)),
        }[fleet.load]
        yield name, noisy(shape, 0.02, f"{fleet.seed} {name}")
