"""Judges the health of each GPU: a fault fences only the GPU that has it; flapping is damped."""

from agents.policy.health.fencing import note_reset, observe
from agents.policy.health.states import GpuObservation, HealthCause, HealthSettings, HealthState, HealthVerdict
from agents.policy.health.verdicts import verdict

__all__ = [
    "GpuObservation",
    "HealthCause",
    "HealthSettings",
    "HealthState",
    "HealthVerdict",
    "note_reset",
    "observe",
    "verdict",
]
