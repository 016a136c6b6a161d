"""Nine of ten deliberate bugs in what admits programs, callers and tokens are found by the tests of those rooms."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agents import gateway
from agents.node import printed
from tests.proofs.changed_code import find_mutants
from tests.proofs.mutants import find_failed, survives
from tests.support.forked import ROOT
from tests.support.patience import patience

SEED = 1
SAMPLE = 300  # of the modules of a group
LEAST_FOUND_SHARE = 0.9
GATEWAY = Path(gateway.__path__[0])
GROUPS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "admission": (
        (
            "agents.admission.filling",
            "agents.admission.interpreters",
            "agents.admission.programs",
            "agents.admission.reading",
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
            ".".join(("agents.gateway", *path.relative_to(GATEWAY).with_suffix("").parts))
            for path in sorted(GATEWAY.rglob("*.py"))
            if path.stem != "__init__"
        ),
        tuple(
            f"tests/agents/gateway/test_{name}.py"
            for name in (
                "desired", "followers", "overload", "relief", "bursts", "api", "counting", "bad_answers",
                "refused_routes", "in_time", "tokens", "admitting", "following", "routes", "balance_files", "reloads",
                "balance", "limited_copies", "hostile_callers", "converging", "sidecar_alone", "plane",
            )
        ),
    ),
    "gate": (
        ("app.http.gate",),
        (
            "tests/app/http/test_gate_within.py",
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


UNSEEN = """
import logging, time
log = logging.getLogger()
def hear(lines: list | None, until: float) -> float:
    kept: dict | None = None
    log.info("%s and %s", len(lines) + 1, True)
    if until < time.monotonic():
        raise ValueError(f"too late: {lines[:200]}")
    return max(a + b for a, b in zip(lines, lines, strict=True))
"""


def test_what_nobody_could_notice_is_no_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "planted_unseen.py").write_text(UNSEEN)
    monkeypatch.syspath_prepend(tmp_path)
    assert [f"{mutant.line}: {mutant.change}" for mutant in find_mutants("planted_unseen")] == [
        "7: condition False", "7: condition True", "7: raise of line 8 left out", "9: Add to Sub", "9: returns None",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("code", ["", "assert False", "import time; time.sleep(1000)"])
def test_nothing_is_left_of_tests_that_leave_processes_and_files(
    tmp_path: Path, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.proofs.mutants.LEAST_PATIENCE_SECONDS", patience(3.0))
    file, pids = tmp_path / "test_leaves.py", tmp_path / "pids"
    file.write_text(
        "import subprocess, tempfile\n"
        "def test_leaves(tmp_path):\n"
        "    words = ['sh', '-c', 'echo $$; trap \"\" TERM; sleep 1000 & exec sleep 1000']\n"
        "    left = subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE)\n"
        "    found = [left.stdout.readline().decode().strip(), tempfile.mkdtemp(), str(tmp_path)]\n"
        f"    open({str(pids)!r}, 'w').write('\\n'.join(found))\n"
        f"    {code}\n"
    )
    mutant = find_mutants("agents.node.printed")[0]
    failed = find_failed(mutant, [str(file)], {"as long as any test": 0.0} if "sleep" in code else {})
    assert failed.partition("::")[2] == ("test_leaves" if code else "")
    left = pids.read_text().splitlines()
    assert not [path for path in (f"/proc/{left[0]}", *left[1:]) if Path(path).exists()]


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
    """By the tests in their everyday form: each mutant that survives costs one whole run of them."""
    modules, tests = GROUPS[group]
    words = [sys.executable, "-m", "tests.proofs.mutants", ",".join(modules), *tests]
    words += ["--sample", str(SAMPLE), "--seed", str(SEED)]
    environment = {
        name: value for name, value in os.environ.items() if name not in ("GPUWRIGHT_SOAK", "GPUWRIGHT_FAST")
    }
    done = subprocess.run(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    found, drawn = map(int, done.stdout.splitlines()[-1].split()[0:3:2])
    assert found >= LEAST_FOUND_SHARE * drawn, done.stdout
