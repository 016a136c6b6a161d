"""Nine of ten deliberate bugs in what admits programs, callers and tokens are found by the tests of those rooms."""

from __future__ import annotations

import ast
import linecache
import sys
from importlib import import_module
from pathlib import Path

import pytest

from agents import gateway
from agents.node import printed
from tests.proofs.mutants import Mutant, draw, find_mutants, find_patience_seconds, survives

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
    "gateway": (
        tuple(
            f"agents.gateway.{path.stem}"
            for path in sorted(Path(gateway.__path__[0]).glob("*.py"))
            if path.stem != "__init__"
        ),
        tuple(
            f"tests/agents/gateway/test_{name}.py"
            for name in (
                "desired", "followers", "overload", "relief", "bursts", "api", "counting", "bad_answers",
                "refused_routes", "in_time", "tokens", "admitting", "following", "routes", "balance_files", "reloads",
                "balance", "limited_copies", "hostile_callers",
            )
        ),
    ),
    "gate": (
        ("app.http.gate",),
        (
            "tests/app/http/test_gate.py",
            "tests/app/http/test_unsent.py",
            "tests/app/http/test_slow_readers.py",
            "tests/app/http/test_connection.py",
            "tests/app/http/test_tracing.py",
            "tests/app/http/test_server.py",
            "tests/app/http/test_lanes.py",
            "tests/app/http/test_places.py",
            "tests/app/api/test_tokens.py",
            "tests/app/console/test_forged.py",
        ),
    ),
    "tokens": (
        ("app.tokens",),
        (
            "tests/app/test_tokens.py",
            "tests/app/api/test_tokens.py",
            "tests/app/api/test_rotation.py",
            "tests/app/console/test_forged.py",
        ),
    ),
}  # fmt: skip


# Nothing that anybody sees is different: a module, a part of the line, and the change to it.
EQUIVALENT = (
    ("agents.gateway.admitting", "len(refused) > LONGEST_EXPRESSION", "Gt to GtE"),
    ("agents.gateway.bursts", "self.whole = False  # the open", "False to True"),  # set again as counting begins
    ("agents.gateway.kinds", "", "filter left out"),  # of services with few kinds, none is too many
    ("app.tokens", "self._era = 0", "0 to 1"),  # only whether two eras are the same counts
    ("app.tokens", "entry[1] < time.monotonic()", "Lt to LtE"),  # the very moment
    ("app.tokens", "principal.expires_at <= now", "LtE to Lt"),
    ("app.tokens", "else bytes(32)", "32 to 33"),  # what no hash of a secret is equal to
)


def _path(module: str) -> str:
    path = import_module(module).__file__
    assert path is not None
    return path


def is_equivalent(mutant: Mutant) -> bool:
    """Returns whether the change is one of those that make no difference."""
    line = linecache.getline(_path(mutant.module), mutant.line)
    return any(
        (mutant.module, mutant.change) == (module, change) and part in line for module, part, change in EQUIVALENT
    )


def test_each_change_that_makes_no_difference_is_still_possible() -> None:
    possible = {
        (module, part, change)
        for module, part, change in EQUIVALENT
        for mutant in find_mutants(module)
        if mutant.change == change and is_equivalent(mutant) and part in linecache.getline(_path(module), mutant.line)
    }
    assert possible == set(EQUIVALENT)


def test_each_mutant_changes_the_module_in_another_way() -> None:
    found = find_mutants("agents.node.printed")
    texts = {ast.unparse(mutant.tree()) for mutant in found}
    texts.add(ast.unparse(ast.parse(Path(printed.__file__).read_text())))
    assert len(texts) == len(found) + 1 > 20


@pytest.mark.slow
def test_a_mutant_survives_tests_that_ask_nothing_however_they_are_named(tmp_path: Path) -> None:
    mutant = find_mutants("agents.node.printed")[0]
    file = tmp_path / "test_nothing.py"
    file.write_text("def test_nothing() -> None:\n    assert True\n")
    for tests in (str(file), str(tmp_path), f"{file}::test_nothing"):
        assert survives(mutant, [tests]), tests


@pytest.mark.slow
def test_tests_that_cannot_be_run_say_nothing_of_a_mutant(tmp_path: Path) -> None:
    mutant = find_mutants("agents.node.printed")[0]
    for tests in (str(tmp_path), str(tmp_path / "test_missing.py")):
        with pytest.raises(RuntimeError, match="could not be run"):
            survives(mutant, [tests])


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("group", GROUPS)
def test_nine_of_ten_deliberate_bugs_are_found(group: str) -> None:
    modules, tests = GROUPS[group]
    drawn = [mutant for mutant in draw(modules, SAMPLE, SEED) if not is_equivalent(mutant)]
    seconds = find_patience_seconds(tests)
    survivors = [str(mutant) for mutant in drawn if survives(mutant, tests, seconds)]
    print("\n".join(survivors), file=sys.stderr)
    assert len(survivors) <= (1 - LEAST_FOUND_SHARE) * len(drawn), survivors
