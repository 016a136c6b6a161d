"""The power loop: Morak's Algorithm 1 on the node, one GPU and one period at a time, without asking anyone."""

from agents.power.energy import Energy, metered
from agents.power.knobs import Knob
from agents.power.law import step
from agents.power.samples import Samples
from agents.power.seen import Move, SeenGpu, SeenInstance, State
from agents.power.settings import Settings

__all__ = [
    "Energy", "Knob", "Move", "Samples", "SeenGpu", "SeenInstance", "Settings", "State", "metered", "step",
]  # fmt: skip
