"""How healthy each GPU is: faults fence the GPU that has them, and only that one; flapping is damped."""

from __future__ import annotations

from dataclasses import dataclass

from agents.health.seen import Cause, Observed, State, Verdict

__all__ = ["Cause", "Observed", "Settings", "State", "Verdict", "observe", "returned", "verdict"]


@dataclass(frozen=True, slots=True)
class Settings:
    """When a GPU counts as hot, and how long it must have been good before it is used again."""

    hot_c: float = 93.0
    cool_by_c: float = 5.0  # below hot_c before it counts as cool
    slow_seconds: float = 10.0  # slowed down for so long before it is degraded
    clear_seconds: float = 60.0  # not slowed down for so long before it is ok
    unread: int = 3  # failed readings in a row
    back_off_seconds: float = 60.0  # after the first fault; each relapse doubles it
    longest_back_off_seconds: float = 3600.0
    decay_seconds: float = 3600.0  # of good time that take one relapse off


def observe(state: State, seen: Observed, now: float, settings: Settings = Settings()) -> State:
    """One look at one GPU. `now` in seconds by a clock that does not go backwards."""
    return state


def verdict(state: State, now: float) -> Verdict:
    """How the GPU is by all that was seen of it."""
    return Verdict("ok")


def returned(state: State, now: float) -> State:
    """A person has reset or replaced it: what needed that is over; the back-off runs from now."""
    return state
