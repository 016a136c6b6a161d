"""One GPU's health, fault by fault."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from agents.policy.health import GpuObservation, HealthSettings, HealthState, note_reset, observe, verdict
from agents.seams.device import GpuReading, MpsState, Trouble

GOOD = GpuReading(memory_used_gib=1.0, temperature_c=50.0, ecc_uncorrected=0, energy_mj=10**9)
OK = GpuObservation("GPU-a", reading=GOOD, mps=MpsState.ACTIVE)
LOST = GpuObservation("GPU-a", present=False, trouble=Trouble.LOST)
BACK_OFF = HealthSettings().back_off_seconds


def after(state: HealthState, observation: GpuObservation, now: float, seconds: int = 1) -> HealthState:
    """Seen so once a second, from `now` on."""
    for second in range(seconds):
        state = observe(state, observation, now + second)
    return state


def reading(**values: object) -> GpuObservation:
    return replace(OK, reading=replace(GOOD, **values))  # type: ignore[arg-type]


FRESH = after(HealthState("GPU-a"), OK, 0.0)


def test_a_gpu_without_observations_is_ok() -> None:
    assert verdict(HealthState("GPU-a"), 0.0).health == "ok"
    assert verdict(FRESH, 1.0) == verdict(HealthState("GPU-a"), 0.0)


@pytest.mark.parametrize("code", [13, 31, 43, 45, 68, 109])
def test_an_xid_of_an_application_changes_nothing(code: int) -> None:
    assert verdict(observe(FRESH, replace(OK, xids=(code,)), 1.0), 1.0).health == "ok"


@pytest.mark.parametrize(("code", "needs"), [(48, "reset"), (64, "reset"), (74, "reset"), (95, "reset"), (119, "reset"),
                                             (120, "reset"), (79, "reboot"), (54, "repair")])  # fmt: skip
def test_a_fatal_xid_fences_until_a_person_did_what_it_needs(code: int, needs: str) -> None:
    state = observe(FRESH, replace(OK, xids=(13, code, 45)), 1.0)
    for now in (1.0, 10_000.0):
        found = verdict(after(state, OK, now), now)
        assert (found.health, found.reason, found.fenced, found.needs) == ("failed", f"xid_{code}", True, needs)
        assert f"XID {code}" in found.message
    state = note_reset(after(state, OK, 10_000.0), 10_000.0, HealthSettings())
    assert verdict(state, 10_000.0).fenced
    assert not verdict(after(state, OK, 10_001.0 + BACK_OFF), 10_001.0 + BACK_OFF).fenced


@pytest.mark.parametrize("code", [63, 92, 94])
def test_an_xid_that_asks_for_a_reset_when_convenient_degrades_and_does_not_fence(code: int) -> None:
    state = after(observe(FRESH, replace(OK, xids=(code,)), 1.0), OK, 2.0, 500)
    found = verdict(state, 502.0)
    assert (found.health, found.reason, found.fenced) == ("degraded", f"xid_{code}", False)
    assert verdict(note_reset(state, 503.0, HealthSettings()), 503.0).health == "ok"


def test_an_unknown_xid_fences_for_the_back_off() -> None:
    state = observe(FRESH, replace(OK, xids=(9999,)), 1.0)
    assert verdict(state, 1.0).fenced
    assert verdict(after(state, OK, BACK_OFF), BACK_OFF).fenced
    assert verdict(after(state, OK, 1.0 + BACK_OFF), 1.0 + BACK_OFF).health == "ok"


def test_a_gpu_that_fell_off_the_bus_is_fenced_at_once_and_for_the_back_off_after_it_is_back() -> None:
    state = after(FRESH, LOST, 1.0, 100)
    assert (verdict(state, 100.0).health, verdict(state, 100.0).reason) == ("failed", "lost")
    state = after(state, OK, 101.0, int(BACK_OFF))
    assert (verdict(state, 160.0).health, verdict(state, 160.0).fenced) == ("degraded", True)
    assert verdict(after(state, OK, 161.0), 161.0).health == "ok"


def test_a_lost_gpu_that_is_back_counts_as_reset() -> None:
    state = after(observe(FRESH, replace(OK, xids=(79,)), 1.0), LOST, 2.0, 5)
    assert verdict(state, 7.0).needs == "reboot"
    assert verdict(after(state, OK, 8.0), 8.0).needs == ""


def test_a_restarted_energy_counter_shows_a_reset() -> None:
    state = observe(FRESH, replace(OK, xids=(48,)), 1.0)
    assert verdict(after(state, reading(energy_mj=10**9 + 5), 2.0), 2.0).needs == "reset"
    assert verdict(after(state, reading(energy_mj=5), 2.0), 2.0).needs == ""


@pytest.mark.parametrize(("mps", "reason"), [(MpsState.FAULT, "mps_fault"), (MpsState.DOWN, "mps_down")])
def test_a_fault_of_mps_fences_and_a_restarted_daemon_soon_ends_it(mps: MpsState, reason: str) -> None:
    state = after(FRESH, replace(OK, mps=mps), 1.0, 3)
    assert (verdict(state, 3.0).reason, verdict(state, 3.0).fenced) == (reason, True)
    assert verdict(after(state, replace(OK, mps=MpsState.IDLE), 8.0), 8.0).health == "ok"


def test_growing_memory_errors_fence_and_old_ones_do_not() -> None:
    old = after(HealthState("GPU-a"), reading(ecc_uncorrected=7), 0.0, 10)
    assert verdict(old, 10.0).health == "ok"
    assert verdict(after(old, reading(ecc_uncorrected=8), 11.0), 11.0).reason == "ecc"


def test_a_restarted_counter_of_memory_errors_is_no_fault() -> None:
    old = after(HealthState("GPU-a"), reading(ecc_uncorrected=7), 0.0)
    state = after(old, reading(ecc_uncorrected=0), 1.0)
    assert verdict(state, 1.0).health == "ok"
    assert verdict(after(state, reading(ecc_uncorrected=1), 2.0), 2.0).reason == "ecc"


def test_one_failed_reading_is_nothing_and_three_in_a_row_fence() -> None:
    silent = replace(OK, reading=None, trouble=Trouble.TIMEOUT)
    assert verdict(after(FRESH, silent, 1.0, 2), 2.0).health == "ok"
    assert verdict(after(FRESH, silent, 1.0, 3), 3.0).reason == "unreadable"
    assert verdict(after(after(FRESH, silent, 1.0, 2), OK, 3.0), 3.0).health == "ok"


def test_a_hot_gpu_takes_nothing_new_until_it_is_cool() -> None:
    state = after(FRESH, reading(temperature_c=94.0), 1.0)
    assert (verdict(state, 1.0).health, verdict(state, 1.0).reason, verdict(state, 1.0).fenced) == (
        "degraded",
        "hot",
        True,
    )
    state = after(state, reading(temperature_c=90.0), 2.0, 300)
    assert "lasts" in verdict(state, 302.0).message
    assert not verdict(after(state, reading(temperature_c=87.0), 302.0, 62), 364.0).fenced


@pytest.mark.parametrize("reason", ["hw_slowdown", "hw_thermal", "sw_thermal", "power_brake"])
def test_being_slowed_down_for_long_degrades_without_a_fence(reason: str) -> None:
    slow = reading(clock_reasons=frozenset({reason, "power_cap"}))
    assert verdict(after(FRESH, slow, 1.0, 10), 10.0).health == "ok"
    state = after(FRESH, slow, 1.0, 12)
    assert (verdict(state, 12.0).health, verdict(state, 12.0).reason, verdict(state, 12.0).fenced) == (
        "degraded", reason, False,
    )  # fmt: skip
    assert verdict(after(state, OK, 13.0, 60), 72.0).health == "degraded"
    assert verdict(after(state, OK, 13.0, 61), 73.0).health == "ok"


def test_the_power_cap_alone_is_no_fault() -> None:
    capped = reading(clock_reasons=frozenset({"power_cap"}))
    assert verdict(after(FRESH, capped, 1.0, 100), 100.0).health == "ok"


def test_each_relapse_doubles_the_back_off_and_good_time_takes_them_off() -> None:
    state, now, waits = FRESH, 0.0, []
    for _ in range(4):
        state = observe(state, LOST, now := now + 1)
        began = now
        while verdict(state, now).fenced:
            state = observe(state, OK, now := now + 1)
        waits.append(now - began - 1)
    assert waits == [60, 120, 240, 480]
    state = observe(state, OK, now + 2 * HealthSettings().decay_seconds)
    state = observe(state, OK, state.at)
    assert state.relapses == 2


def test_the_back_off_has_an_end() -> None:
    state = replace(FRESH, relapses=1000)
    state = observe(state, LOST, 1.0)
    longest = HealthSettings().longest_back_off_seconds
    assert not verdict(after(observe(state, OK, 2.0), OK, 2.0 + longest), 2.0 + longest).fenced


def test_a_fault_that_needs_a_person_stays_named_after_other_faults() -> None:
    state = observe(FRESH, replace(OK, xids=(48,)), 1.0)
    state = after(state, replace(OK, mps=MpsState.FAULT), 2.0, 10)
    assert (verdict(state, 12.0).reason, verdict(state, 12.0).needs) == ("xid_48", "reset")


def test_what_is_remembered_survives_being_written_down() -> None:
    state = after(
        observe(FRESH, replace(OK, xids=(48, 63)), 1.0), reading(clock_reasons=frozenset({"sw_thermal"})), 2.0, 20
    )
    assert msgspec.json.decode(msgspec.json.encode(state), type=HealthState) == state


def test_a_look_at_another_gpu_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="GPU-b cannot update the state of GPU GPU-a"):
        observe(FRESH, replace(OK, uuid="GPU-b"), 1.0)
