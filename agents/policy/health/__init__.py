"""How healthy each GPU is: a fault fences the GPU that has it, and only that one; flapping is damped."""

from agents.policy.health.fencing import observe, returned
from agents.policy.health.seen import Cause, Observed, Settings, State, Verdict
from agents.policy.health.verdicts import verdict

__all__ = ["Cause", "Observed", "Settings", "State", "Verdict", "observe", "returned", "verdict"]
