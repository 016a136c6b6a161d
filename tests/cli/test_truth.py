"""The names of truths on the command line are those that the simulation knows."""

from __future__ import annotations

from typing import get_args

from cli import truth
from simulation import limits as allowed


def test_the_command_line_offers_the_truths_that_the_simulation_knows() -> None:
    assert allowed.TRUTHS == truth.TRUTHS
    assert get_args(allowed.ProfilesName) == truth.PROFILES
