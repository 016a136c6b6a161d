"""Hypothesis injects faults into the simulated fleet, in any order and for any time, and shrinks failures."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from simulation.run import open_simulation
from tests.simulation.chaos import FAULTS, Chaos
from tests.simulation.test_chaos import converged, settled, world
from tests.simulation.worlds import CALM_TICK_SECONDS
from tests.support.postgres import DatabaseServer
from tests.support.soak import SOAK, scaled


def machine(server: DatabaseServer) -> type[RuleBasedStateMachine]:
    """A machine whose every run has a database of its own."""

    class Faults(RuleBasedStateMachine):
        """One fleet; each step is a fault and some time."""

        def __init__(self) -> None:
            super().__init__()
            self.stack = ExitStack()
            self.chaos: Chaos | None = None

        @initialize(seed=st.integers(0, 1000))
        def begin(self, seed: int) -> None:
            url = server.create()
            self.stack.callback(server.drop, url)
            self.chaos = Chaos(self.stack.enter_context(open_simulation(url, world())), seed)
            self.chaos.advance(90, CALM_TICK_SECONDS)
            assert settled(self.chaos) == []

        @rule(fault=st.sampled_from(sorted(FAULTS)), seconds=st.integers(1, 60))
        def strike(self, fault: str, seconds: int) -> None:
            assert self.chaos
            self.chaos.strike(fault)
            self.chaos.advance(seconds)

        @invariant()
        def nothing_happened_that_must_not(self) -> None:
            assert not self.chaos or self.chaos.violations == []

        def teardown(self) -> None:
            try:
                if self.chaos:
                    self.chaos.mend()
                    assert converged(self.chaos) == []
                    assert self.chaos.violations == []
            finally:
                self.stack.close()

    return Faults


@pytest.mark.slow
def test_no_sequence_of_faults_breaks_what_must_hold(postgres: DatabaseServer) -> None:
    run_state_machine_as_test(
        machine(postgres),
        settings=settings(
            max_examples=scaled(40, 2),
            stateful_step_count=scaled(12, 4),
            deadline=None,
            derandomize=True,
            phases=list(Phase) if SOAK else [Phase.generate],  # shrinking takes minutes
            suppress_health_check=list(HealthCheck),
        ),
    )
