"""The power loop: Morak's Algorithm 1 on the node, one GPU and one period at a time, without asking anyone."""

from agents.policy.power.energy import Energy, metered
from agents.policy.power.knobs import Knob
from agents.policy.power.law import step
from agents.policy.power.samples import Samples
from agents.policy.power.seen import Move, SeenGpu, SeenInstance, State
from agents.policy.power.settings import Settings

__all__ = [
    "Energy", "Knob", "Move", "Samples", "SeenGpu", "SeenInstance", "Settings", "State", "metered", "step",
]  # fmt: skip
