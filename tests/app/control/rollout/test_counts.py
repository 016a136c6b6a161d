"""What runs of what is planned is counted for every declared service, with what a node says of a copy that does not."""

from __future__ import annotations

from app.control.domain.desired import CopyCounts, FleetStatus, InstanceStatus
from app.control.domain.specs import DOWN_SECONDS
from app.control.rollout.counts import PROBE_SECONDS, CopyMarks, count_copies, find_waiting, list_unassigned
from tests.app.control.rollout.fleets import a_job, a_node, an_instance

TARGET = {"n1": a_node(an_instance("a"), an_instance("b"), a_job("j")), "n2": a_node(an_instance("c"))}
SEARCH = "shop/search"
READY = InstanceStatus("ready", routed=True)
WAITING = InstanceStatus("routing", rising="routing")
EXITED = InstanceStatus(reason="exited", message="no such file; failed 3 times")


def counts(status: FleetStatus, *pending: str, suspects: tuple[str, ...] = (), waited: float = 0.0) -> CopyCounts:
    """Returns the counts of a service, if every copy that is not routed has waited for so many seconds."""
    waits = find_waiting({}, TARGET, status, 0.0)
    marks = CopyMarks(frozenset(pending), frozenset(suspects), dict.fromkeys(waits, waited))
    return count_copies([SEARCH, "shop/none"], TARGET, status, marks, DOWN_SECONDS)[SEARCH]


def test_copies_that_run_and_those_that_are_routed_are_counted_apart() -> None:
    status = FleetStatus({"a": READY, "b": WAITING, "c": READY})
    assert counts(status) == CopyCounts(planned=3, running=3, routed=2)


def test_a_copy_that_no_gateway_sends_requests_to_is_named_once_it_has_waited_for_long_enough() -> None:
    status = FleetStatus({"a": READY, "b": InstanceStatus("ready"), "c": READY})
    assert counts(status, waited=DOWN_SECONDS + PROBE_SECONDS - 1).why == ""
    late = counts(status, waited=DOWN_SECONDS + PROBE_SECONDS)
    assert late == CopyCounts(planned=3, running=3, routed=2, why="b on n1/0 runs, and no gateway sends it requests")


def test_a_copy_has_waited_since_it_was_first_seen_without_requests_while_its_node_is_heard() -> None:
    waiting = FleetStatus({"a": READY, "b": WAITING, "c": WAITING})
    since = find_waiting({}, TARGET, waiting, 10.0)
    assert find_waiting(since, TARGET, waiting, 20.0) == {("b", True): 10.0, ("c", True): 10.0}
    silent = FleetStatus({"a": READY, "b": READY, "c": WAITING}, silent=frozenset({"n2"}))
    assert find_waiting(since, TARGET, silent, 30.0) == {}


def test_a_copy_that_does_not_run_is_named_with_what_its_node_says() -> None:
    status = FleetStatus({"a": READY, "b": EXITED, "c": READY})
    why = "b on n1/0: exited: no such file; failed 3 times"
    assert counts(status) == CopyCounts(planned=3, running=2, routed=2, why=why)
    assert counts(status, suspects=(SEARCH,)).is_suspect


def test_a_copy_that_has_taken_long_to_start_waits_for_requests_from_when_it_runs() -> None:
    since = find_waiting({}, TARGET, FleetStatus({"a": READY, "b": READY}), 10.0)
    assert since == {("c", False): 10.0}
    assert find_waiting(since, TARGET, FleetStatus({"a": READY, "b": READY, "c": WAITING}), 90.0) == {("c", True): 90.0}


def test_a_copy_that_starts_is_no_trouble_and_one_that_is_not_reported_for_long_is() -> None:
    status = FleetStatus({"a": READY, "b": InstanceStatus("warming", rising="warming")})
    assert counts(status, "c") == CopyCounts(planned=3, running=1, routed=1)
    assert counts(status).why == ""
    assert counts(status, waited=DOWN_SECONDS + PROBE_SECONDS).why == "c on n2/0 does not run"
    silent = FleetStatus({"a": READY, "b": READY, "c": READY}, silent=frozenset({"n2"}))
    assert counts(silent) == CopyCounts(planned=3, running=2, routed=2, why="c on n2/0: its node does not report")


def test_a_copy_whose_node_has_not_been_told_of_it_is_still_to_come() -> None:
    assigned = {"n1": a_node(an_instance("a")), "n2": a_node(an_instance("b"), an_instance("c"))}
    assert list_unassigned(TARGET, assigned) == {"b"}
    assert list_unassigned(TARGET, TARGET) == frozenset()


def test_a_service_without_a_copy_is_counted_too() -> None:
    assert count_copies(["shop/none"], TARGET, FleetStatus(), CopyMarks(), DOWN_SECONDS) == {"shop/none": CopyCounts()}
