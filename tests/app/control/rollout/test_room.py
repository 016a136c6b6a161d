"""What a copy lacks on a GPU is told without the names of what other tenants run there."""

from __future__ import annotations

import msgspec

from app.control.rollout.room import GpuLimits, shortfall_on
from tests.app.control.rollout.fleets import MEMORY_GIB, a_node, an_instance


def test_who_stands_on_a_gpu_that_is_wanted_alone_is_named_to_its_own_tenant_only() -> None:
    alone = an_instance("search-1", dedicated=True)
    ours = an_instance("rank-1", service="rank")
    theirs = msgspec.structs.replace(ours, id="secret-1", tenant="lab")
    told = [shortfall_on(GpuLimits.of(a_node(other), MEMORY_GIB, 1), alone, [other]) for other in (ours, theirs)]
    words = [one.message for one in told if one]
    assert words[0].startswith("rank-1 is still on the GPU")
    assert words[1].startswith("an instance of another tenant is still on the GPU")
