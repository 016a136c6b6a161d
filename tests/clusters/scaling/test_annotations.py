"""Annotations adopt a workload; each that says something else is named with what is allowed."""

from __future__ import annotations

import time

import pytest

from clusters.decided_bounds import AnnotatedBounds
from clusters.estate import OURS
from clusters.scaling.annotations import MOST_FAULTS, NOT_NAMED, read_adoption

ADOPTED = {"service": "ranker", "mode": "auto", "max-replicas": "40"}


def annotated(**given: str | None) -> dict[str, str]:
    """Returns the annotations of an adopted workload with other values; None takes one away."""
    named = {**ADOPTED, **{key.replace("_", "-"): value for key, value in given.items()}}
    return {OURS + key: value for key, value in named.items() if value is not None} | {"team": "search"}


def test_a_workload_is_adopted_with_its_mode_and_bounds() -> None:
    found = read_adoption(annotated(min_replicas="2", model="ranker", variant="fp16", slo_p99_ms="80"))
    assert found and (found.service, found.mode, found.faults) == ("ranker", "auto", ())
    assert found.bounds == AnnotatedBounds(2, 40)


def test_without_a_mode_a_workload_is_advised_on_and_has_no_upper_bound() -> None:
    found = read_adoption(annotated(mode=None, max_replicas=None))
    assert found and (found.mode, found.bounds, found.faults) == ("advisory", AnnotatedBounds(1, None), ())


def test_what_only_describes_a_workload_adopts_it_not() -> None:
    assert read_adoption({OURS + "model": "ranker", OURS + "slo-p99-ms": "80"}) is None


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"service": "Ranker!"}, "gpuwright.io/service 'Ranker!' is not a DNS label"),
        ({"service": None}, "gpuwright.io/service is missing, which names the service that it serves"),
        ({"model": ""}, "gpuwright.io/model '' is not a DNS label"),
        ({"mode": "Auto"}, "gpuwright.io/mode 'Auto' is not one of advisory, approve, auto"),
        ({"min_replicas": "-1"}, "gpuwright.io/min-replicas '-1' is outside 0..10000"),
        ({"max_replicas": "0"}, "gpuwright.io/max-replicas '0' is outside 1..10000"),
        ({"max_replicas": "1e3"}, "gpuwright.io/max-replicas '1e3' is outside 1..10000"),
        ({"min_replicas": "50"}, "gpuwright.io/min-replicas 50 is above gpuwright.io/max-replicas 40"),
        ({"max_replicas": None}, "gpuwright.io/mode auto needs gpuwright.io/max-replicas"),
        ({"slo_p99_ms": "fast"}, "gpuwright.io/slo-p99-ms 'fast' is outside 0..1e+12"),
        ({"slo_p10_ms": "80"}, "gpuwright.io/slo-p10-ms names a percentile outside 50..99.9"),
        ({"service": "x" * 64}, "gpuwright.io/service has 64 characters, more than 63"),
        ({"sevice": "x"}, "gpuwright.io/sevice is no annotation of ours; did you mean gpuwright.io/service?"),
    ],
)
def test_each_bad_annotation_is_named_with_what_is_allowed(given: dict[str, str | None], sentence: str) -> None:
    found = read_adoption(annotated(**given))
    assert found and len(found.faults) == 1
    assert found.faults[0].startswith(sentence)


@pytest.mark.parametrize("service", ["a\0b", "Ranker!", None])
def test_what_is_no_name_of_a_service_is_none(service: str | None) -> None:
    found = read_adoption(annotated(service=service))
    assert found and found.service == ""


def test_of_thousands_of_annotations_a_few_are_named_in_little_time() -> None:
    flood = {f"{OURS}max-replica{number:x}": "9" * 40 for number in range(5000)}
    began = time.process_time()
    found = read_adoption(annotated(mode="Auto") | flood)
    assert time.process_time() - began < 0.1
    assert found and len(found.faults) <= MOST_FAULTS
    assert found.faults[0].startswith("gpuwright.io/mode 'Auto'")
    assert found.faults[1].startswith("gpuwright.io/max-replica0 is no annotation of ours; did you mean")
    assert found.faults[-1] == "4998 more annotations are not ours either"


def test_faults_that_are_not_named_are_still_faults() -> None:
    for given in (annotated(service="Ranker!"), annotated(sevice="x"), annotated(max_replicas=None)):
        found = read_adoption(given, names_faults=False)
        assert found and found.faults == (NOT_NAMED,)
    found = read_adoption(annotated(), names_faults=False)
    assert found and found.faults == ()
