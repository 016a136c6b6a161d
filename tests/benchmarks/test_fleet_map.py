"""The map of a fleet: a box for each GPU in use, and in it the shares that its instances have."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

from benchmarks.fleet_map import draw_map
from solvers.planners.ask import find_plan
from solvers.planners.names import ONE_PER_GPU, TIME_SLICED
from solvers.planning.solve import SolveBudget
from tests.solvers.hetsev.fleet.fleets import fleet

SVG = "{http://www.w3.org/2000/svg}"


def test_each_gpu_in_use_is_a_box_and_each_instance_a_part_of_it() -> None:
    problem = replace(fleet(60.0), state=None)
    plans = [
        find_plan(problem, name, SolveBudget(seconds=None), bounds=False).plan for name in (ONE_PER_GPU, TIME_SLICED)
    ]
    root = ElementTree.fromstring(draw_map(problem, ("before", plans[0]), ("after", plans[1])))
    boxes = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "gpu"]
    parts = [rect for rect in root.iter(f"{SVG}rect") if rect.get("fill")]
    assert len(boxes) == sum(len({line.place for line in plan.instances}) for plan in plans)
    assert len(parts) == sum(len(plan.instances) for plan in plans)
