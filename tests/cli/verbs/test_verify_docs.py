"""The documentation names the judge's rules, all of them and no others."""

from __future__ import annotations

import re

from solvers.planning.judge import gpus, jobs, services, shapes, tenants
from tests.cli.offline import ROOT


def test_the_documentation_names_every_rule_of_the_judge() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    table = text.partition("Each rule has a name:")[2].partition("`misstated`")[0]
    functions = [
        *shapes.RULES, *shapes.LOAD_RULES, *gpus.RULES, *gpus.NODE_RULES, *services.RULES, *tenants.RULES,
        *jobs.LINE_RULES, *jobs.RULES, services.slo_holds, services.unserved_exists, jobs.unplaced_exists,
    ]  # fmt: skip
    assert set(re.findall(r"`(\w+)`", table)) == {rule.__name__ for rule in functions} | {"power_budget_holds"}
