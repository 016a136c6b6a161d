"""get and describe against a real server."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Run, service
from tests.support.server import RunningServer


@pytest.mark.slow
def test_a_table_has_the_columns_of_its_kind(world: Run) -> None:
    world("apply", "-f", "-", stdin=service("a1", tenant="table"))
    done = world("get", "svc", "--tenant", "table")
    heading, row = done.lines
    headings = ["NAME", "TENANT", "MODEL", "SLO", "P", "RATE", "PRIORITY", "ATTAINABLE", "PLANNED", "COPIES", "IN"]
    headings += ["SLO", "AGE"]
    assert heading.split() == headings
    assert row.split()[:-1] == ["a1", "table", "resnet50", "80", "ms", "98", "900/s", "100", "False", "-", "-", "-"]
    assert world("get", "nodes", "--no-headers").lines[0].split()[:3] == ["node-1", "v100-16gb", "4"]


def test_an_slo_of_tokens_has_both_its_promises(world: Run) -> None:
    chat = {
        "apiVersion": "gpuwright/v1", "kind": "Model", "metadata": {"name": "chat"},
        "spec": {"variants": [{"name": "fp16", "accuracy": 0.7, "llm": {
            "weightsGib": 12, "layers": 32, "kvBytesPerToken": 131072, "contextTokens": 4096, "parallel": [1]}}]},
    }  # fmt: skip
    lengths = {"input": {"mean": 400, "p95": 900}, "output": {"mean": 100, "p95": 220}}
    slo = {"ttftMs": 2000, "tpotMs": 60, "percentile": 95}
    served = {
        "apiVersion": "gpuwright/v1", "kind": "Service", "metadata": {"name": "assistant", "tenant": "talk"},
        "spec": {"model": "chat", "ratePerSecond": 2, "slo": slo, "tokens": lengths},
    }  # fmt: skip
    applied = world("apply", "-f", "-", stdin=yaml.safe_dump_all([chat, served]))
    assert applied.code == 0, applied.err
    row = world("get", "svc", "--tenant", "talk").lines[1]
    assert re.split(r"\s{2,}", row)[:5] == ["assistant", "talk", "chat", "2000 ms, 60 ms a token", "95"]
    described = world("describe", "service", "talk/assistant").out
    spec = yaml.safe_load(described[described.index("Spec:") : described.index("Conditions:")])["Spec"]
    assert (spec["slo"], spec["tokens"]) == (slo, lengths)


@pytest.mark.slow
def test_every_kind_has_a_table_also_when_it_is_empty(world: Run) -> None:
    for kind in ("svc", "jo", "no", "gt", "mo", "pr", "po", "ten"):
        for form in ("table", "wide", "name", "json", "yaml"):
            assert world("get", kind, "-o", form).code == 0
    assert world("get", "ten").err == "no tenants found\n"


@pytest.mark.slow
def test_all_pages_are_read(world: Run) -> None:
    world("apply", "-f", "-", stdin="".join(service(f"s{n}", tenant="many") for n in range(501)))
    assert len(world("get", "services", "--tenant", "many", "-o", "name").lines) == 501
    assert len(json.loads(world("get", "services", "--tenant", "many", "-o", "json").out)) == 501
    listed = world("get", "services", "--tenant", "many", "-o", "yaml").out
    assert len(list(yaml.safe_load_all(listed))) == 501


def test_selectors_narrow_a_list(world: Run) -> None:
    world(
        "apply",
        "-f",
        "-",
        stdin=service("l1", "picked", labels="{team: a}") + service("l2", "picked", labels="{team: b}"),
    )
    assert world("get", "svc", "-l", "team=a", "--tenant", "picked", "-o", "name").lines == ["service/picked/l1"]
    fields = "metadata.name!=l1,spec.model=resnet50"
    found = world("get", "svc", "--field-selector", fields, "--tenant", "picked", "-o", "name")
    assert found.lines == ["service/picked/l2"]
    assert world("get", "svc", "-l", "=").code == 2


def test_one_object_is_named_with_or_without_its_tenant(world: Run) -> None:
    world("apply", "-f", "-", stdin=service("only", "one") + service("twice", "one") + service("twice", "two"))
    for words in (["svc", "one/only"], ["svc/one/only"], ["service", "only"]):
        assert json.loads(world("get", *words, "-o", "json").out)["metadata"]["name"] == "only"
    ambiguous = world("get", "service", "twice")
    assert ambiguous.code == 2 and "one/twice, two/twice" in ambiguous.err
    assert world("get", "service", "twice", "--tenant", "two", "-o", "name").lines == ["service/two/twice"]


def test_what_is_not_there_is_exit_code_1_with_the_next_step(world: Run) -> None:
    done = world("get", "node", "nope")
    assert (done.code, done.out) == (1, "")
    assert done.err == "gpuwright: there is no Node nope; see: gpuwright get nodes\n"
    assert world("get", "service", "nobody").code == 1
    assert world("apply", "-f", "-", stdin=service("search", "shop")).code == 0
    for words in (
        ["get", "service", "shop/serch"],
        ["describe", "svc", "serch", "--tenant", "shop"],
        ["explain", "shop/serch"],
    ):
        mistyped = world(*words)
        assert mistyped.code == 1
        assert mistyped.err.endswith("; did you mean shop/search?\n")


def test_a_list_of_several_kinds_is_several_tables(world: Run) -> None:
    done = world("get", "nodes,gputypes")
    assert [line.split()[0] for line in done.lines if line.startswith("NAME")] == ["NAME", "NAME"]
    assert "" in done.lines


def test_describe_tells_why_a_service_is_not_attainable(world: Run) -> None:
    world("apply", "-f", "-", stdin=service("d1", "described"))
    done = world("describe", "service", "described/d1")
    assert done.code == 0
    assert "Tenant:     described" in done.lines and "  model: resnet50" in done.lines
    assert any(line.split()[:2] == ["SloAttainable", "False"] for line in done.lines)


def test_a_wrong_token_is_exit_code_3_and_says_where_it_came_from(world: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUWRIGHT_TOKEN", "gw_abcdefghijkl_" + "x" * 43)
    done = world("get", "nodes")
    assert done.code == 3 and "the token of GPUWRIGHT_TOKEN" in done.err and "xxx" not in done.err


@pytest.mark.slow
def test_the_quickstart_fills_every_table(run: Run, api: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUWRIGHT_SERVER", api.url)
    monkeypatch.setenv("GPUWRIGHT_TOKEN", api.admin_token)
    example = Path(__file__).parents[3] / "examples" / "quickstart.yaml"
    assert run("apply", "-f", str(example)).code == 0
    done = run("get", "all", "-o", "wide")
    assert done.code == 0 and sum(line.startswith("NAME ") for line in done.lines) == 8
    assert run("diff", "-f", str(example)).code == 0
    job = next(line for line in run("get", "jobs", "-o", "name").lines)
    assert "Spec:" in run("describe", "job", job.removeprefix("job/")).lines
