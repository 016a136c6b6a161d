"""The power loop: Morak's Algorithm 1 for one GPU and one period at a time, on the node alone."""

from agents.policy.power.energy import Energy, add_reading
from agents.policy.power.knobs import Knob
from agents.policy.power.law import step
from agents.policy.power.periods import GpuPeriod, InstancePeriod, PowerMove, PowerState
from agents.policy.power.samples import Samples
from agents.policy.power.settings import PowerSettings

__all__ = [
    "Energy",
    "GpuPeriod",
    "InstancePeriod",
    "Knob",
    "PowerMove",
    "PowerSettings",
    "PowerState",
    "Samples",
    "add_reading",
    "step",
]  # fmt: skip
