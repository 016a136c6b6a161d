"""A decision names the services and jobs of which something else than weights changes."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from msgspec.structs import asdict
from msgspec.structs import replace as changed

from agents.contract.assignments import AssignedInstance, Frame
from app.control.decide.drafting import find_changed_owners
from app.control.domain.desired import NodeDesired
from tests.support.soak import scaled

WEIGHTS = ("rate_per_second", "batch")


def line(r: Random, id_: str) -> AssignedInstance:
    owner = {"service": r.choice("ab")} if r.random() < 0.7 else {"job": "j", "args": {"steps": r.randrange(2)}}
    return AssignedInstance(
        id_, r.randrange(2), "shop", sm_percent=float(r.choice((10, 20))), batch=Frame(2.0, 1.0, 4.0), **owner
    )


def fleet(r: Random) -> dict[str, NodeDesired]:
    return {
        node: NodeDesired(tuple(line(r, f"{node}-{number}") for number in range(r.randrange(5))))
        for node in ("n1", "n2", "n3")
    }


def after(r: Random, before: dict[str, NodeDesired]) -> dict[str, NodeDesired]:
    """Returns a fleet with some lines gone, moved, new, of other weights, or of other shapes."""
    found = {}
    for node, wanted in before.items():
        lines = [each for each in wanted.instances if r.random() < 0.8]
        for at, each in enumerate(lines):
            kind = r.choice(("same", "equal", "rate", "batch", "shape"))
            if kind == "rate":
                lines[at] = changed(each, rate_per_second=r.random())
            elif kind == "batch":
                lines[at] = changed(each, batch=Frame(2.0, 1.0, 8.0))
            elif kind == "shape":
                lines[at] = changed(each, sm_percent=r.choice((10.0, 20.0, 30.0)))
            elif kind == "equal":
                lines[at] = changed(each)
        lines += [line(r, f"{node}-new{number}") for number in range(r.randrange(2))]
        found[node] = replace(wanted, instances=tuple(r.sample(lines, len(lines))))
    return {node: wanted for node, wanted in found.items() if r.random() < 0.9}


def without_weights(each: AssignedInstance) -> tuple[str, tuple[object, ...]]:
    values = {name: value for name, value in asdict(each).items() if name not in (*WEIGHTS, "args")}
    batch = each.batch.planned if each.batch else 0
    return each.owner, (*values.items(), batch, *sorted((each.args or {}).items()))


@pytest.mark.parametrize("seed", range(scaled(500, 50)))
def test_owners_change_where_a_line_of_theirs_is_in_one_fleet_alone(seed: int) -> None:
    r = Random(seed)
    before = fleet(r)
    then = after(r, before)
    was, now = (
        {(node, without_weights(each)) for node, wanted in known.items() for each in wanted.instances}
        for known in (before, then)
    )
    assert find_changed_owners(before, then) == tuple(sorted({each[0] for _, each in was ^ now}))


def test_other_weights_change_nobody() -> None:
    before = {
        "n": NodeDesired((AssignedInstance("i", 0, "shop", "a", rate_per_second=1.0, batch=Frame(2.0, 1.0, 4.0)),))
    }
    (known,) = before["n"].instances
    assert find_changed_owners(before, {"n": NodeDesired((changed(known, rate_per_second=2.0),))}) == ()
    assert find_changed_owners(before, {}) == ("shop/a",)
