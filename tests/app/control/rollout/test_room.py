"""The shortfall of a copy on a GPU is reported without the names of other tenants' instances."""

from __future__ import annotations

import msgspec

from app.control.rollout.room import GpuLimits, shortfall_on
from tests.app.control.rollout.fleets import MEMORY_GIB, a_node, an_instance


def test_an_instance_on_a_gpu_wanted_alone_is_named_to_its_own_tenant_only() -> None:
    alone = an_instance("search-1", dedicated=True)
    ours = an_instance("rank-1", service="rank")
    theirs = msgspec.structs.replace(ours, id="secret-1", tenant="lab")
    shortfalls = [shortfall_on(GpuLimits.of(a_node(other), MEMORY_GIB, 1), alone, [other]) for other in (ours, theirs)]
    words = [shortfall.message for shortfall in shortfalls if shortfall]
    assert words[0].startswith("rank-1 is still on the GPU")
    assert words[1].startswith("an instance of another tenant is still on the GPU")
