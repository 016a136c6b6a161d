"""A failed step is named with its GPU, if another one might do better."""

from __future__ import annotations

from collections.abc import Sequence

from agents.contract.assignments import AssignedInstance
from app.control.domain.events import Reason
from app.control.domain.failures import PlaceFailure
from app.control.rollout.check import StepFailure
from app.control.rollout.failing.stopping import stop_failed
from app.control.rollout.rules import PendingStep, RolloutState
from tests.app.control.rollout.fleets import a_job, a_node, an_instance, rules

LATE = Reason.STEP_TIMED_OUT


def failed_steps(*lines: AssignedInstance, reason: Reason, retried: Sequence[str] = ()) -> tuple[PlaceFailure, ...]:
    """Returns what has failed after steps of all these instances did so, for this reason."""
    assigned = {"n1": a_node(*lines)}
    state = RolloutState(pending={line.id: PendingStep(0.0) for line in lines}, retried=tuple(retried))
    failures = [StepFailure(line.id, reason, "") for line in lines]
    return stop_failed(assigned, assigned, state, failures, rules(), 100.0).state.failures


def test_a_copy_that_its_node_cannot_start_or_that_is_late_twice_failed_at_its_gpu() -> None:
    new = an_instance("new", gpu=1)
    assert failed_steps(new, reason=Reason.STEP_FAILED) == (PlaceFailure("shop/search", ("n1", 1), 100.0),)
    assert failed_steps(new, reason=LATE) == (), "it starts there once more"
    assert failed_steps(new, reason=LATE, retried=["new"]) == (PlaceFailure("shop/search", ("n1", 1), 100.0),)


def test_a_shape_that_misses_its_slo_and_a_job_fail_wherever_they_are() -> None:
    assert failed_steps(an_instance("new"), reason=Reason.CANARY_FAILED) == (PlaceFailure("shop/search", None, 100.0),)
    assert failed_steps(a_job("job"), reason=Reason.STEP_FAILED) == (PlaceFailure("lab/train", None, 100.0),)


def test_copies_of_one_service_that_fail_on_one_gpu_are_one_failure() -> None:
    twins = [an_instance("one"), an_instance("two"), an_instance("else", "other", gpu=1)]
    assert failed_steps(*twins, reason=Reason.STEP_FAILED) == (
        PlaceFailure("shop/other", ("n1", 1), 100.0), PlaceFailure("shop/search", ("n1", 0), 100.0),
    )  # fmt: skip
