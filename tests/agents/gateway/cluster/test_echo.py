"""An echo proves what the Gateway has read: what counts as its answer, and what is left over of echoes before."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from agents.gateway.cluster.echo import EchoVerdict, judge_echo, list_leftovers
from agents.gateway.cluster.objects import (
    BACKEND,
    ECHO,
    ROUTE,
    SLICE,
    ParentGateway,
    RouteSettings,
    name_backend,
    name_slice,
    write_backend,
    write_echo_route,
    write_slice,
)
from agents.gateway.cluster.reading import SeenObjects, read_objects
from agents.gateway.cluster.shapes import CopyEndpoint
from agents.kubernetes.api import Object

PARENT = ParentGateway("infra", "public")
SETTINGS = RouteSettings("edge-1", "routes", PARENT)
FIRST, SECOND = ECHO + "1", ECHO + "2"
PLACE = CopyEndpoint("echo", "192.0.2.1:9")
AVAILABLE = {"Accepted": "True", "ResolvedRefs": "True"}


def see(echo: str, conditions: Mapping[str, str] = AVAILABLE, generation: int = 1) -> list[SeenObjects]:
    """Returns an echo whose route the Gateway says this of, at generation 1, and what an echo before it has left."""
    route = write_echo_route(SETTINGS, echo)
    route["metadata"]["generation"] = generation
    said = [{"type": name, "status": status, "observedGeneration": 1} for name, status in conditions.items()]
    route["status"] = {"parents": [{"parentRef": PARENT.reference(), "conditions": said}]}
    backends = [write_backend(SETTINGS, each, 0) for each in (FIRST, SECOND)]
    slices = [write_slice(SETTINGS, each, 0, PLACE) for each in (FIRST, SECOND)]
    found: dict[str, list[Object]] = {"route": [route], "backend": backends, "slice": slices}
    services, echoes = read_objects(
        {
            kind: {each["metadata"]["name"]: each for each in found[name]}
            for kind, name in ((ROUTE, "route"), (BACKEND, "backend"), (SLICE, "slice"))
        }
    )
    assert services == {}, "an echo is no service"
    return echoes


@pytest.mark.parametrize(
    ("conditions", "generation", "verdict"),
    [
        (AVAILABLE, 1, EchoVerdict.ANSWERED),
        ({}, 1, EchoVerdict.AWAITED),
        (AVAILABLE, 2, EchoVerdict.AWAITED),
        (AVAILABLE | {"BackendsAvailable": "False"}, 1, EchoVerdict.AWAITED),
        ({"Accepted": "True", "ResolvedRefs": "False"}, 1, EchoVerdict.AWAITED),
        ({"Accepted": "False"}, 1, EchoVerdict.ANSWERED),
    ],
    ids=["taken", "says nothing", "an older generation", "has read no slice", "no Service", "takes no route of ours"],
)
def test_what_the_gateway_says_of_an_echo(conditions: dict[str, str], generation: int, verdict: EchoVerdict) -> None:
    assert judge_echo(see(SECOND, conditions, generation), name_backend(SETTINGS, SECOND, 0), PARENT) is verdict


def test_an_echo_that_somebody_deletes_or_writes_is_lost() -> None:
    backend = name_backend(SETTINGS, SECOND, 0)
    assert judge_echo([], backend, PARENT) is EchoVerdict.LOST
    assert judge_echo(see(FIRST), backend, PARENT) is EchoVerdict.LOST


def test_what_is_left_of_other_echoes() -> None:
    left = list_leftovers(see(SECOND), name_backend(SETTINGS, SECOND, 0))
    names = [(kind, found["metadata"]["name"]) for kind, found in left]
    assert names == [(SLICE, name_slice(SETTINGS, FIRST, 0, PLACE)), (BACKEND, name_backend(SETTINGS, FIRST, 0))]
