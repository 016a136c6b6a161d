"""A light node treats an assignment as an agent does: make before break, within its room, and reports it."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from agents.contract.assignments import AssignedInstance, Assignment, Frame
from agents.contract.reports import Report
from agents.keeper.copies import Stage
from simulation.clock import Clock
from simulation.fleet.node import LightNode
from simulation.fleet.node_reports import Speaker
from simulation.world import truth_of
from tests.simulation.worlds import small


def instance(name: str, gpu: int = 0, sm: float = 40, memory: float = 2.0, batch: float = 8) -> AssignedInstance:
    return AssignedInstance(
        f"{name}-1",
        gpu,
        "shop",
        name,
        model=name,
        variant="fp16",
        template="gpuwright-serve",
        sm_percent=sm,
        memory_gib=memory,
        batch=Frame(batch, 1, 8),
        rate_per_second=50,
        slo_ms=120,
        percentile=98,
    )


class Driven:
    """A node of two GPUs that receives assignments and advances in time."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.node = LightNode("node-0", "v100-16gb", 2, truth_of(small()), self.clock, 0)
        self.speaker = Speaker(self.node)
        self.generation = 0

    def tell(self, *instances: AssignedInstance, **fields: str) -> None:
        self.generation += 1
        self.node.offer(Assignment("node-0", self.generation, 1, self.generation, instances=instances, **fields))  # type: ignore[arg-type]

    def advance(self, seconds: float) -> None:
        for _ in range(int(seconds * 4)):
            self.clock.advance(0.25)
            self.node.tick()

    def stages(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for copy in self.node.alive():
            found.setdefault(copy.instance, []).append(copy.stage)
        return found

    def report(self) -> Report:
        return msgspec.json.decode(msgspec.json.encode(self.speaker.reports()[-1]), type=Report)


def test_a_copy_is_ready_after_its_profiles_start_seconds() -> None:
    driven = Driven()
    driven.tell(instance("a"))
    driven.advance(18)
    assert driven.stages() == {"a-1": [Stage.STARTING]}
    driven.advance(5)
    assert driven.stages() == {"a-1": [Stage.READY]}


def test_a_resize_serves_throughout_and_then_with_the_new_shape_alone() -> None:
    driven = Driven()
    driven.tell(instance("a"))
    driven.advance(25)
    driven.tell(instance("a", sm=60))
    for _ in range(30):
        driven.advance(1)
        assert driven.node.serving()
    (survivor,) = driven.node.alive()
    assert survivor.wanted.sm_percent == 60


def test_a_batch_is_turned_without_a_start() -> None:
    driven = Driven()
    driven.tell(instance("a"))
    driven.advance(25)
    (before,) = driven.node.serving()
    driven.tell(instance("a", batch=4))
    driven.advance(0.25)
    (after,) = driven.node.serving()
    assert after.id == before.id
    assert after.wanted.batch
    assert after.wanted.batch.planned == 4


def test_an_instance_without_room_is_held_back_and_reported() -> None:
    driven = Driven()
    driven.tell(instance("a", memory=10), instance("b", memory=10))
    driven.advance(1)
    assert [held.reason for held in driven.report().held_back] == ["no_room"]


def test_a_lost_gpu_takes_its_copies_along_and_is_reported() -> None:
    driven = Driven()
    driven.tell(instance("a"), instance("b", gpu=1))
    driven.advance(25)
    driven.node.lose(0)
    driven.advance(1)
    report = driven.report()
    assert [(gpu.health, gpu.fenced) for gpu in report.gpus] == [("failed", True), ("ok", False)]
    assert report.health == "degraded"
    assert list(driven.stages()) == ["b-1"]
    driven.node.give_back(0)
    driven.advance(30)
    assert sorted(driven.stages()) == ["a-1", "b-1"]


def test_a_copy_that_dies_is_started_again_and_a_failing_start_rests() -> None:
    driven = Driven()
    driven.tell(instance("a"))
    driven.advance(25)
    driven.node.failing["a-1"] = 2
    driven.node.kill(driven.node.alive()[0].id)
    driven.advance(2)
    assert driven.stages() == {"a-1": [Stage.STARTING]}
    driven.advance(75)
    assert driven.stages() == {"a-1": [Stage.READY]}
    assert driven.node.failing["a-1"] == 0


def test_without_contact_it_starts_nothing_new_and_keeps_serving() -> None:
    driven = Driven()
    driven.tell(instance("a"))
    driven.advance(25)
    driven.node.contact = False
    driven.tell(instance("b"))
    driven.advance(60)
    assert driven.stages() == {"a-1": [Stage.READY]}
    driven.node.contact = True
    driven.advance(30)
    assert driven.stages() == {"b-1": [Stage.READY]}


def test_an_older_assignment_is_refused_and_counted() -> None:
    driven = Driven()
    driven.tell(instance("a"))
    driven.node.offer(Assignment("node-0", 9, 0, 99, instances=()))
    driven.advance(25)
    assert driven.report().stale_assignments == 1
    assert driven.stages() == {"a-1": [Stage.READY]}


def test_a_restarted_agent_finds_what_runs_and_reports_under_a_new_incarnation() -> None:
    driven = Driven()
    driven.tell(instance("a"))
    driven.advance(25)
    before = driven.report()
    driven.node.restart()
    driven.advance(1)
    after = driven.report()
    assert (after.incarnation, after.sequence) == (before.incarnation + 1, 0)
    assert after.inventory is not None
    assert [copy.id for copy in after.copies] == [copy.id for copy in before.copies]


def test_a_wrong_clock_shows_in_what_it_says_and_in_nothing_it_does() -> None:
    driven = Driven()
    driven.node.clock_off = timedelta(hours=-1)
    driven.tell(instance("a"))
    driven.advance(25)
    assert driven.stages() == {"a-1": [Stage.READY]}
    assert driven.report().at == driven.clock.now() - timedelta(hours=1)


def test_usage_is_reported_until_acknowledged_and_its_copy_then_forgotten() -> None:
    driven = Driven()
    driven.tell(instance("a"))
    driven.advance(25)
    assert [interval.ended_at for interval in driven.report().usage] == [None]
    driven.tell()
    driven.advance(5)
    report = driven.report()
    assert [interval.ended_at is None for interval in report.usage] == [False]
    driven.speaker.note_stored(report, [])
    assert driven.node.copies == {}
    assert driven.report().usage == ()
