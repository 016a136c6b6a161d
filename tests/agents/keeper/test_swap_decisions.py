"""Which jobs move to host memory, and which return: decided from what is wanted and what is there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.contract.assignments import JobTerms
from agents.contract.fits import GpuRules
from agents.keeper.copies import AWAY, DOWN, NodeCopy, Stage
from agents.keeper.decide import CopyDecision, NodeConstraints, Start, TakeDown, WantedInstance, decide
from tests.agents.keeper.test_decide import GPU, NODE, OTHER, copy, job, reasons, started, want

RULES = GpuRules()
SWAPS = JobTerms(swaps=True)
AWAY_T = replace(NODE, swapped=("t",))
GUARDED = replace(NODE, stopped_jobs=("t",))
LATER = NodeConstraints({GPU: 16.0, OTHER: 16.0}, contact=False)
STARTING = [Stage.STARTING, Stage.VERIFYING, Stage.WARMING]


def training(sm: float = 30, **fields: object) -> WantedInstance:
    return job("t", sm, terms=SWAPS, **fields)


def there(stage: Stage, sm: float = 30) -> list[NodeCopy]:
    return [copy(training(sm), stage)]


def decided(wanted: list[WantedInstance], copies: list[NodeCopy], node: NodeConstraints) -> CopyDecision:
    return decide(wanted, copies, node, RULES)


@pytest.mark.parametrize(("wanted", "node"), [([], AWAY_T), ([training()], GUARDED)])
def test_a_job_that_shall_wait_is_swapped_out_once_and_stays(
    wanted: list[WantedInstance], node: NodeConstraints
) -> None:
    assert decided(wanted, there(Stage.READY), node) == CopyDecision(swap_out=("t.1.1",))
    for stage in (*AWAY, Stage.RETURNING):
        assert decided(wanted, there(stage), node) == CopyDecision()


@pytest.mark.parametrize("stage", STARTING)
def test_a_job_that_has_only_begun_is_taken_down(stage: Stage) -> None:
    assert decided([], there(stage), AWAY_T).take_down == (TakeDown("t.1.1", "not_wanted"),)
    assert decided([training()], there(stage), GUARDED).take_down == (TakeDown("t.1.1", "made_room"),)


def test_a_job_that_has_not_opted_in_or_has_several_gpus_is_taken_down() -> None:
    for stays in (job("t"), job("t", terms=JobTerms())):
        decision = decided([], [copy(stays)], AWAY_T)
        assert (decision.swap_out, decision.take_down) == ((), (TakeDown("t.1.1", "not_wanted"),))
    wide = training(gpus=(0, 1))
    wide = WantedInstance(wide.instance, GPU, (GPU, OTHER))
    held = NodeCopy("t.1.1", wide.instance, GPU, Stage.READY, gpus=(GPU, OTHER))
    assert decided([], [held], AWAY_T).take_down == (TakeDown("t.1.1", "not_wanted"),)
    assert decided([wide], [held], GUARDED).take_down == (TakeDown("t.1.1", "made_room"),)


def test_a_service_waits_for_the_job_that_moves_and_starts_where_it_was() -> None:
    service = want("a", 90)
    decision = decided([service], there(Stage.READY), AWAY_T)
    assert (started(decision), reasons(decision), decision.swap_out) == ([], {}, ("t.1.1",))
    assert decided([service], there(Stage.SWAPPING), AWAY_T) == CopyDecision()
    assert decided([service], there(Stage.SWAPPED), AWAY_T) == CopyDecision(start=(Start(service),))


def test_a_job_returns_to_its_process_once_there_is_room() -> None:
    assert decided([training()], there(Stage.SWAPPED), NODE) == CopyDecision(bring_back=("t.1.1",))
    assert decided([training()], there(Stage.RETURNING), NODE) == CopyDecision()
    decision = decided([training(), want("a", 90)], [*there(Stage.SWAPPED), copy(want("a", 90))], NODE)
    assert (decision.bring_back, reasons(decision)) == ((), {"t": "no_room"})
    leaving = copy(want("a", 90), Stage.DRAINING)
    assert decided([training()], [*there(Stage.SWAPPED), leaving], NODE) == CopyDecision()


def test_a_job_that_is_wanted_again_while_it_moves_waits() -> None:
    assert decided([training()], there(Stage.SWAPPING), NODE) == CopyDecision()


def test_what_returns_takes_its_room_from_what_starts_in_the_same_decision() -> None:
    other = job("u", 80)
    decision = decided([training(), other], there(Stage.SWAPPED), NODE)
    assert (decision.bring_back, started(decision), reasons(decision)) == (("t.1.1",), [], {"u": "no_room"})


@pytest.mark.parametrize("stage", AWAY)
def test_a_job_that_is_neither_wanted_nor_to_wait_is_taken_down(stage: Stage) -> None:
    assert decided([], there(stage), NODE).take_down == (TakeDown("t.1.1", "not_wanted"),)


@pytest.mark.parametrize("stage", AWAY)
@pytest.mark.parametrize("shape", [training(40), training(gpu=OTHER), training(memory=3)])
def test_a_job_that_is_wanted_in_another_shape_is_ended_before_it_starts_again(
    stage: Stage, shape: WantedInstance
) -> None:
    assert decided([shape], there(stage), NODE) == CopyDecision(take_down=(TakeDown("t.1.1", "replaced"),))
    assert decided([shape], there(Stage.ENDING), NODE) == CopyDecision()
    assert started(decided([shape], [], NODE)) == ["t"]


@pytest.mark.parametrize("stage", [Stage.READY, *AWAY])
def test_a_recycled_gpu_is_left_by_its_jobs_in_host_memory_too(stage: Stage) -> None:
    for node, wanted in ((AWAY_T, []), (GUARDED, [training()])):
        decision = decided(wanted, there(stage), replace(node, recycled=(GPU,)))
        assert decision == CopyDecision(take_down=(TakeDown("t.1.1", "gpu_recycled"),))


def test_without_contact_nothing_moves_but_for_the_guard() -> None:
    silent = replace(AWAY_T, contact=False)
    for stage in (Stage.READY, *AWAY):
        assert decided([], there(stage), silent) == CopyDecision()
        assert decided([], there(stage), LATER) == CopyDecision()
    assert decided([training()], there(Stage.SWAPPED), LATER) == CopyDecision()
    assert decided([training()], there(Stage.READY), replace(GUARDED, contact=False)).swap_out == ("t.1.1",)
    known = replace(LATER, established=("t",))
    assert decided([training()], there(Stage.SWAPPED), known).bring_back == ("t.1.1",)


def test_on_a_fenced_gpu_nothing_returns() -> None:
    decision = decided([training()], there(Stage.SWAPPED), replace(NODE, fenced={GPU: "xid_79"}))
    assert (decision.bring_back, reasons(decision)) == ((), {"t": "gpu_fenced"})


JOBS = "tuv"


@given(
    st.dictionaries(st.sampled_from(JOBS), st.sampled_from(list(Stage)[:-1])),
    st.dictionaries(st.sampled_from(JOBS), st.integers(2, 5)),
    st.sets(st.sampled_from(JOBS)),
    st.sets(st.sampled_from(JOBS)),
    st.booleans(),
)
def test_no_copy_gets_two_orders_and_what_holds_the_gpu_fits(
    stages: dict[str, Stage], wanted: dict[str, int], waiting: set[str], guarded: set[str], contact: bool
) -> None:
    copies = [copy(job(name, 20, terms=SWAPS, memory=6), stage) for name, stage in stages.items()]
    asked = [job(name, 10 * tenths, terms=SWAPS, memory=6) for name, tenths in wanted.items()]
    node = replace(
        NODE, swapped=waiting - wanted.keys(), stopped_jobs=guarded & wanted.keys(), contact=contact, established=wanted
    )
    decision = decide(asked, copies, node, RULES)
    orders = [*decision.swap_out, *decision.bring_back, *(move.copy for move in decision.take_down)]
    assert len(orders) == len(set(orders))
    by_id = {one.id: one for one in copies}
    assert all(by_id[name].stage is Stage.READY for name in decision.swap_out)
    assert all(by_id[name].stage is Stage.SWAPPED for name in decision.bring_back)
    assert not any(by_id[move.copy].stage in DOWN for move in decision.take_down)
    assert not {start.wanted.instance.id for start in decision.start} & stages.keys()
    before = sum(one.wanted.memory_gib for one in copies if one.stage is not Stage.SWAPPED)
    more = 6 * (len(decision.start) + len(decision.bring_back))
    assert more == 0 or before + more <= 16
