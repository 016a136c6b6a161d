"""What a page says of the code and is not so is found; what is so is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.house import pages
from scripts.house.tree import Tree
from scripts.house.typed import find_fault

TREE = Tree()


@pytest.fixture(scope="module", autouse=True)
def _tree_that_is_read() -> None:
    """Read before the first test that asks, since it keeps what it read for all others."""
    pages.list_flags()
    pages.list_variables()


def findings(tmp_path: Path, text: str, name: str = "page.md") -> list[str]:
    path = tmp_path / name
    path.write_text(text)
    return [str(finding) for finding in pages.find_faults(pages.Page(path, text, TREE))]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("`gpuwright undo`", "there is no verb 'undo'"),
        ("`gpuwright plan undo 3`", "gpuwright plan has no 'undo'"),
        ("`gpuwright top --forever`", "gpuwright top takes no --forever"),
        ("`gpuwright top [--forever]`", "gpuwright top takes no --forever"),
        ("`--forever`", "no verb takes --forever"),
        ("```console\ngpuwright plan undo 3\n```", "invalid choice"),
        ("    gpuwright get --everything nodes", "unrecognized arguments"),
        ("`/api/v1/nothing`", "/api/v1/nothing: no such route"),
        ("GET /api/v1/services/{tenant}", "no such route"),
        ("`PATCH /api/v1/endpoints`", "the route does not take PATCH"),
        ("`app/nothing/`", "app/nothing/ is not in the tree"),
        ("see app/nothing.yaml", "app/nothing.yaml is not in the tree"),
        ("    cp deploy/systemd/nothing.service /etc", "deploy/systemd/nothing.service is not in the tree"),
        ("`nothing/settings.py`", "no file of the tree is called `nothing/settings.py`"),
        ("`nothing_at_all.py`", "no file of the tree is called `nothing_at_all.py`"),
        ("python -m tests.proofs.nothing", "`tests.proofs.nothing` does not exist"),
        ("`python -m tests.proofs.town --forever 3`", "tests.proofs.town takes no --forever"),
        ("`solvers.latency.nothing_at_all`", "`solvers.latency.nothing_at_all` does not exist"),
        ("`solvers.planning.plan.Plan.nothing`", "`solvers.planning.plan.Plan.nothing` does not exist"),
        ("`GPUWRIGHT_" + "NOTHING`", "nothing reads the variable GPUWRIGHT_"),
        ("Start anew.", '"anew"'),
        ("[there](nothing.md)", "the link nothing.md leads to no file"),
        ("# Here\n\n[there](#elsewhere)", "the link #elsewhere leads to no heading"),
        ("## What was measured\n\n3 ms", "these figures name no command that measures them"),
    ],
)
def test_a_false_statement_is_found_and_named_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    found = findings(tmp_path, f"First.\n\n{text}\n")
    assert len(found) == 1
    assert found[0].startswith("page.md:")
    assert said in found[0]


@pytest.mark.parametrize(
    "text",
    [
        "`gpuwright plan diff 42`, `gpuwright bench WHAT [--json]`, `gpuwright help VERB`, `--data-dir`",
        "`GET /api/v1/endpoints`, `/api/v1/gateways/NAME/counts`",
        "`cli/verbs/NAME.py`, `app/settings.py`, `tests/docs/`, `examples/*.yaml`",
        "`python -m tests.proofs.town --agents 20 --blows 50`, `python -m pytest`",
        "`GPUWRIGHT_POOL_SIZE`, `DATABASE_URL`",
        "# What is here\n\n[here](#what-is-here), [elsewhere](page.md#what-is-here), [far](https://example.org/x)",
        "## What was measured\n\n3 ms (`gpuwright bench solve`)",
    ],
)
def test_a_true_statement_is_left_alone(tmp_path: Path, text: str) -> None:
    assert findings(tmp_path, text) == []


def test_a_readme_that_is_too_long_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    assert findings(tmp_path, "x" * 7_000, "README.md") == []
    assert findings(tmp_path, "x" * 7_001, "README.md") == ["README.md:1: 7,001 bytes; at most 7,000"]


def test_a_wrong_command_is_found() -> None:
    assert "invalid choice" in find_fault(["plan", "undo", "3"])
    assert find_fault(["nonsense"]) == "there is no verb 'nonsense'"
    assert find_fault(["plan", "diff", "42"]) == ""
