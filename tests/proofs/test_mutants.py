"""Nine of ten deliberate bugs in what admits users' programs are found by the tests of those rooms."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from agents.node import printed
from tests.proofs.mutants import draw, find_mutants, survives

SEED = 1
SAMPLE = 300  # of the modules of a group
LEAST_FOUND_SHARE = 0.9
GROUPS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "admission": (
        (
            "agents.admission.filling",
            "agents.admission.interpreters",
            "agents.admission.programs",
            "agents.admission.reading",
            "agents.admission.volumes",
            "agents.host.trusted_path",
        ),
        (
            "tests/agents/admission/test_filling.py",
            "tests/agents/admission/test_reading.py",
            "tests/agents/admission/test_smuggling.py",
            "tests/agents/admission/test_volumes.py",
            "tests/agents/admission/test_swapping.py",
            "tests/agents/admission/test_confinement.py",
            "tests/agents/admission/test_own_job_saves.py",
            "tests/agents/host/test_trusted_path.py",
        ),
    ),
    "printed": (("agents.node.printed",), ("tests/agents/node/test_printed.py",)),
}


def test_each_mutant_changes_the_module_in_another_way() -> None:
    found = find_mutants("agents.node.printed")
    texts = {ast.unparse(mutant.tree()) for mutant in found}
    texts.add(ast.unparse(ast.parse(Path(printed.__file__).read_text())))
    assert len(texts) == len(found) + 1 > 20


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("group", GROUPS)
def test_nine_of_ten_deliberate_bugs_are_found(group: str) -> None:
    modules, tests = GROUPS[group]
    assert survives(None, tests), "the tests hold without any"
    drawn = draw(modules, SAMPLE, SEED)
    survivors = [str(mutant) for mutant in drawn if survives(mutant, tests)]
    print("\n".join(survivors), file=sys.stderr)
    assert len(survivors) <= (1 - LEAST_FOUND_SHARE) * len(drawn), survivors
