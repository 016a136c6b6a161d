"""The steps of the kit, in order, and how long each may take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from scripts.gpukit import device_steps, fault_steps, handover, load_steps, outside_steps
from scripts.gpukit.stand import Stand


@dataclass(frozen=True, slots=True)
class KitStep:
    """Something to try, on its own: what it starts ends with it."""

    name: str
    run: Callable[[Stand], dict[str, Any]]
    seconds: float
    needs_mps: bool = True
    changes_settings: bool = False


def run_profiler(stand: Stand) -> dict[str, Any]:
    from scripts.gpukit import profiler  # it needs NumPy, which the other steps do not

    return profiler.run_profiler(stand)


# What needs least time comes first, so that a machine that is taken away early has shown something.
STEPS: Sequence[KitStep] = (
    KitStep("device", device_steps.read_device, 20, needs_mps=False),
    KitStep("settings", device_steps.try_settings, 20, needs_mps=False, changes_settings=True),
    KitStep("mps", device_steps.ask_mps, 30),
    KitStep("shares", load_steps.see_shares, 60),
    KitStep("memory", load_steps.exceed_memory, 40),
    KitStep("termination", load_steps.end_one_of_two, 40),
    KitStep("outside", outside_steps.run_outside, 45),
    KitStep("foreign", outside_steps.meet_a_foreign_daemon, 45),
    KitStep("hung", fault_steps.hang_one_of_two, 120),
    KitStep("full", outside_steps.start_when_full, 60),
    KitStep("limits", outside_steps.lift_limits, 30),
    KitStep("handover", handover.hand_over, 60),
    KitStep("alone", load_steps.run_alone, 100),
    KitStep("clocks", device_steps.try_clocks, 40, changes_settings=True),
    KitStep("realModel", load_steps.run_real_model, 90),
    KitStep("profiler", run_profiler, 150),
    KitStep("pairs", load_steps.run_pairs, 150),
    KitStep("killed", fault_steps.kill_one_of_two, 40),
    KitStep("fault", fault_steps.see_a_fault, 60),
)
NAMES = tuple(step.name for step in STEPS)
