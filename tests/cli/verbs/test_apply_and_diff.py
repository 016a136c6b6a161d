"""apply and diff against a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run, service


@pytest.mark.slow
def test_apply_says_one_line_an_object_and_is_idempotent(world: Run) -> None:
    first = world("apply", "-f", "-", stdin=service("a1"))
    assert (first.code, first.lines) == (0, ["service/shop/a1 created"])
    assert world("apply", "-f", "-", stdin=service("a1")).lines == ["service/shop/a1 unchanged"]
    assert world("apply", "-f", "-", stdin=service("a1", latency_ms=60)).lines == ["service/shop/a1 updated"]


def test_a_service_that_nothing_can_serve_is_accepted_with_a_warning(world: Run) -> None:
    done = world("apply", "-f", "-", stdin=service("a2"))
    assert done.code == 0 and done.err.startswith("warning: Service shop/a2")


def test_a_folder_is_one_request_all_or_nothing(world: Run, tmp_path: Path) -> None:
    (tmp_path / "1.yaml").write_text(service("a3"))
    (tmp_path / "2.yml").write_text(service("a4", latency_ms=-1))
    (tmp_path / "ignored.txt").write_text("not a manifest")
    done = world("apply", "-f", str(tmp_path))
    assert (done.code, done.out) == (2, "")
    assert "2.yml#1 Service shop/a4" in done.err and "spec.slo.latencyMs" in done.err
    assert world("get", "service", "shop/a3").code == 1


def test_every_fault_of_every_file_is_on_its_own_line(world: Run, tmp_path: Path) -> None:
    (tmp_path / "1.yaml").write_text(service("a5", latency_ms=-1).replace("model", "modell"))
    (tmp_path / "2.yaml").write_text("kind: Nod\n")
    done = world("apply", "-f", str(tmp_path))
    faults = [line for line in done.err.splitlines() if line.startswith("  ")]
    assert done.code == 2 and len(faults) >= 4
    assert any("did you mean `model`?" in line for line in faults)


def test_a_dry_run_says_so_and_changes_nothing(world: Run) -> None:
    done = world("apply", "--dry-run", "-f", "-", stdin=service("a6"))
    assert done.lines == ["service/shop/a6 created (dry run)"]
    assert world("get", "service", "shop/a6").code == 1


@pytest.mark.slow
def test_what_get_prints_apply_takes_back_unchanged(world: Run) -> None:
    world("apply", "-f", "-", stdin=service("b1", tenant="round") + service("b2", tenant="round"))
    for form in ("yaml", "json"):
        printed = world("get", "all", "--tenant", "round", "-o", form).out
        again = world("apply", "-f", "-", stdin=printed)
        assert again.code == 0 and all(line.endswith(" unchanged") for line in again.lines)
        assert len(again.lines) >= 5


def test_prune_deletes_what_a_set_no_longer_has(world: Run, tmp_path: Path) -> None:
    both, first = service("c1", tenant="pruned") + service("c2", tenant="pruned"), service("c1", tenant="pruned")
    unnamed = world("apply", "--prune", "-f", "-", stdin=first)
    assert unnamed.code == 2 and "name the set: --set NAME" in unnamed.err
    world("apply", "--set", "s", "-f", "-", stdin=both)
    assert world("diff", "--set", "s", "--prune", "-f", "-", stdin=first).lines[0] == (
        "- service/pruned/c2 would be deleted"
    )
    gone = world("apply", "--set", "s", "--prune", "--yes", "-f", "-", stdin=first)
    assert gone.lines == ["service/pruned/c1 unchanged", "service/pruned/c2 deleted"]
    whole = ("apply", "--set", "s", "--prune", "--yes", "-f")
    assert world(*whole, str(tmp_path)).code == world(*whole, "-").code == 2
    assert world(*whole, str(tmp_path), "--allow-empty").lines == ["service/pruned/c1 deleted"]
    assert world(*whole, "-", "--allow-empty").lines == []


def test_diff_shows_fields_and_says_by_its_exit_code_whether_there_are_any(world: Run) -> None:
    world("apply", "-f", "-", stdin=service("d1", labels="{team: search}"))
    assert world("diff", "-f", "-", stdin=service("d1", labels="{team: search}")).code == 0
    done = world("diff", "-f", "-", stdin=service("d1", latency_ms=60, labels="{tier: gold}") + service("d2"))
    assert done.code == 1
    assert done.lines[:5] == [
        "~ service/shop/d1 would be updated",
        '    + metadata.labels.tier: "gold"',
        '    - metadata.labels.team: "search"',
        "    ~ spec.slo.latencyMs: 80 -> 60",
        "+ service/shop/d2 would be created",
    ]
    assert '    + spec.model: "resnet50"' in done.lines[5:]


def test_any_error_of_diff_is_exit_code_2(world: Run, tmp_path: Path) -> None:
    assert world("diff", "-f", "-", stdin="kind: Nod\n").code == 2
    assert world("diff", "-f", str(tmp_path / "absent.yaml")).code == 2
    assert world("--server", "http://127.0.0.1:1", "diff", "-f", "-", stdin=service("d3")).code == 2
