"""A flapping GPU is never used before its back-off ends, and no other GPU pays for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.policy.health import GpuObservation, HealthSettings, HealthState, observe, verdict
from agents.policy.health.xids import LISTED, Weight, meaning
from agents.seams.device import GpuReading, MpsState, Trouble

TUNED = HealthSettings(
    back_off_seconds=8.0, mps_back_off_seconds=8.0, longest_back_off_seconds=64.0, decay_seconds=100.0
)
READINGS = st.builds(
    GpuReading,
    memory_used_gib=st.just(1.0),
    temperature_c=st.none() | st.floats(0, 120) | st.just(float("nan")),
    ecc_uncorrected=st.none() | st.integers(0, 3),
    energy_mj=st.none() | st.integers(0, 10),
    clock_reasons=st.frozensets(st.sampled_from(["hw_slowdown", "sw_thermal", "power_cap", "nonsense"])),
)
LOOKS = st.builds(
    GpuObservation,
    uuid=st.just("GPU-a"),
    present=st.booleans(),
    reading=st.none() | READINGS,
    trouble=st.none() | st.sampled_from(Trouble),
    xids=st.lists(st.integers(0, 200), max_size=2).map(tuple),
    mps=st.none() | st.sampled_from(MpsState),
)
QUIET = GpuObservation("GPU-a", reading=GpuReading(1.0))
# Mostly quiet: a GPU that never rests is never used again, and proves nothing.
HISTORY = st.lists(st.tuples(st.integers(0, 9).map(float), st.just(QUIET) | st.just(QUIET) | LOOKS), max_size=80)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(HISTORY)
def test_a_gpu_is_never_used_again_sooner_than_its_back_off(history: list[tuple[float, GpuObservation]]) -> None:
    state, now, fault_at, was_fenced = HealthState("GPU-a"), 0.0, 0.0, False
    for waited, look in history:
        now += waited
        state = observe(state, look, now, TUNED)
        fenced = verdict(state, now).fenced
        if state.ongoing:
            fault_at = now
        if was_fenced and not fenced:
            assert now - fault_at >= TUNED.back_off_seconds
        was_fenced = fenced


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=400))
def test_case_13_the_faster_it_flaps_the_more_seldom_it_is_used(history: list[bool]) -> None:
    state, uses, fenced = HealthState("GPU-a"), 0, False
    for second, is_lost in enumerate(history):
        look = replace(QUIET, present=False, reading=None) if is_lost else QUIET
        state = observe(state, look, float(second), TUNED)
        uses += fenced and not verdict(state, float(second)).fenced
        fenced = verdict(state, float(second)).fenced
    # Waits of 8, 16, 32 and 64 seconds, and 64 ever after, but for relapses that good time took off.
    assert uses <= 4 + len(history) // 40


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(HISTORY, HISTORY)
def test_another_gpus_state_is_never_changed_by_it(
    mine: list[tuple[float, GpuObservation]], others: list[tuple[float, GpuObservation]]
) -> None:
    def alone(history: list[tuple[float, GpuObservation]], uuid: str) -> HealthState:
        state, now = HealthState(uuid), 0.0
        for waited, look in history:
            now += waited
            state = observe(state, replace(look, uuid=uuid), now, TUNED)
        return state

    states, clocks = {"GPU-a": HealthState("GPU-a"), "GPU-b": HealthState("GPU-b")}, {"GPU-a": 0.0, "GPU-b": 0.0}
    for turn in range(max(len(mine), len(others))):
        for uuid, history in (("GPU-a", mine), ("GPU-b", others)):
            if turn < len(history):
                waited, look = history[turn]
                clocks[uuid] += waited
                states[uuid] = observe(states[uuid], replace(look, uuid=uuid), clocks[uuid], TUNED)
    assert states == {"GPU-a": alone(mine, "GPU-a"), "GPU-b": alone(others, "GPU-b")}


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(HISTORY)
def test_every_verdict_says_why_and_a_clock_going_backwards_lifts_nothing(
    history: list[tuple[float, GpuObservation]],
) -> None:
    state, now = HealthState("GPU-a"), 0.0
    for waited, look in history:
        now += waited
        state = observe(state, look, now, TUNED)
        found = verdict(state, now)
        assert bool(found.reason) == bool(found.message) == (found.health != "ok")
        assert not found.needs or found.fenced
        assert len(found.message) <= 500
        back = observe(state, replace(QUIET, reading=None), now - 1e6, TUNED)
        assert back.at == state.at
        assert verdict(back, 0.0).fenced >= found.fenced


def test_every_listed_xid_says_what_it_is_and_what_to_do_and_is_no_applications() -> None:
    codes = [xid.code for xid in LISTED]
    assert codes == sorted(set(codes))
    for xid in LISTED:
        assert xid.what
        assert xid.do
        assert xid.weight is not Weight.APPLICATION
        assert meaning(xid.code) == xid
