"""What people type by mistake is answered with what to type, and changes nothing."""

from __future__ import annotations

import pytest

from tests.cli.conftest import WORLD, Run, service

HEAD = "apiVersion: gpuwright/v1\nkind: Service\nmetadata: {name: x, tenant: shop}\n"
SLO = "slo: {latencyMs: 80, percentile: 98}, ratePerSecond: 900"
WORDS = [  # a command line, and what its answer has to say
    ("apply fleet.yaml", "did you mean -f fleet.yaml?"),
    ("diff fleet.yml", "did you mean -f fleet.yml?"),
    ("apply -f nowhere.yaml", "cannot read nowhere.yaml: no such file"),
    ("apply -f https://example.com/fleet.yaml", "is a URL, and files are read: curl"),
    ("get servces", "did you mean services?"),
    ("get service shop/serch", "did you mean shop/search?"),
    ("get services -o yml", "did you mean yaml?"),
    ("get services -n shop", "--tenant NAME"),
    ("get services --sort-by cost", "rows are sorted by name"),
    ("describe shop/search", "name it first, like: service shop/search"),
    ("delete service", "a name is missing: gpuwright delete service NAME"),
    ("delete shop/search --yes", "name it first, like: service shop/search"),
    ("edit service", "edit needs a name"),
    ("explain shop/serch", "did you mean shop/search?"),
    ("explain services shop/search", "did you mean service?"),
    ("explain gpu node-1/0", "did you mean node?"),
    ("logs shop/search", "gpuwright logs service shop/search"),
    ("logs service shop/serch", "did you mean shop/search?"),
    ("cordon node-1/x", "use NODE or NODE/INDEX"),
    ("cordon node-1/9", "node node-1 has 4 GPUs; there is no GPU 9; nothing was changed"),
    ("cordon node node-1", "did you mean gpuwright cordon node-1?"),
    ("apply -f fleet.yaml --dry-run=server", "--dry-run takes no value, and was given 'server'"),
    ("use-context prod", "use: gpuwright config use NAME"),
    ("exec shop/search", "gpuwright logs service NAME"),
    ("drain node-1 node-9", "there is no Node node-9; did you mean node-1?"),
    ("drain node-1 --deadline 5minutes", "did you mean 5m?"),
    ("reclaim node-1 --in 0s", "over 0"),
    ("get pods", "see: gpuwright describe service NAME"),
    ("get plans", "see: gpuwright plan history"),
    ("get gpu", "see: gpuwright top"),
    ("plan list", "did you mean history?"),
    ("config ls", "did you mean contexts?"),
    ("plan aprove 3", "did you mean approve?"),
    ("plan show abc", "'abc' is not allowed: a whole number"),
    ("plan rollback 7", "plan 7 does not exist or is no longer kept"),
    ("replay 9999", "plan 9999 does not exist"),
    ("what-if --rate shop/search=2x", "did you mean `x2`?"),
    ("what-if --lose node-1", "did you mean --lose-node?"),
    ("report costs", "did you mean cost?"),
    ("report cost --by tenannt", "did you mean tenant?"),
    ("report cost --from yesterday", "so long ago (1d, 12h)"),
    ("token create --scope operater", "did you mean operator?"),
    ("token create --scope viewer --expires 99y", "up to 3660d"),
    ("events --severity alrm", "did you mean alarm?"),
    ("events --since 2hours", "did you mean 2h?"),
    ("audit --outcome refuse", "did you mean refused?"),
    ("profile resnet50 --on node-9", "there is no Node node-9; did you mean node-1?"),
    ("profile resnet50:fp16 --on node-1", "like resnet50/fp16"),
    ("profile resnet50", "say where to measure: --on NODE[/GPU]"),
    ("wait service shop/search --for Planned", "did you mean condition=Planned?"),
    ("wait service shop/search --for condition=Plannd", "did you mean Planned?"),
    ("config use-context prod", "did you mean contexts?"),
    ("completion zhs", "did you mean zsh?"),
    ("aplly -f x.yaml", "did you mean apply?"),
    ("drain node-1,node-2", "several have spaces between them: node-1 node-2"),
    ("drain nod", "did you mean node-1?"),
    ("get service search,rank", "several names have spaces between them"),
    ("explain node node-1/0", "gpuwright explain node node-1, which tells of each of its GPUs"),
    ("plan diff 1 2", "did you mean --against 2?"),
    ("plan list", "'list' is not known; allowed: history, show"),
    ("report slo --service shop/search", "services stand apart with: --by service"),
    ("what-if --rate shop/search=x2,shop/rank=x2", "give the option once for each service"),
    ("watch shop/search", "a kind comes before a name"),
    ("wait service shop/search", "missing: --for"),
    ("top nodes", "more of a node: gpuwright describe node NAME"),
    ("scale shop/search 3", "from spec.minInstances on: gpuwright edit service NAME"),
    ("scale deployment/rank --replicas=3", "replicas in Kubernetes: kubectl scale"),
    ("scale aprove 3 shop/Deployment/x", "did you mean approve?"),
    ("rollout restart service/x", "use: gpuwright plan history"),
]
FILES = [  # a manifest on standard input, and what its answer has to say
    ("", "the file contains no manifest"),
    ("apiVersion: gpuwright/v1\nkind: Tenant\nmetadata:\n\tname: a\n", "indent with spaces, not tabs"),
    ("kind: Tenant\nmetadata: {name: a}\n", "apiVersion: this field is required (allowed: gpuwright/v1)"),
    ("apiVersion: gpuwright/v1\nkind: tenant\nmetadata: {name: a}\n", "did you mean `Tenant`?"),
    ("apiVersion: gpuwright/v1\nkind: Tenant\nmetadata: {name: My Shop}\n", "did you mean `my-shop`?"),
    ("apiVersion: v1\nkind: List\nitems: []\n", "its items, as documents with --- between"),
    (f"{HEAD}spec: {{model: resnet50, slo: 80, ratePerSecond: 900}}\n", "spec.slo: 80 is not a mapping"),
    (f"{HEAD}spec: {{modle: resnet50, {SLO}}}\n", "did you mean `model`?"),
    (f"{HEAD}spec: {{model: resnet50, {SLO}, rate: 900}}\n", "did you mean `ratePerSecond`?"),
    (f"{HEAD}spec: {{model: resnet50, {SLO.replace('900', '900/s')}}}\n", "did you mean `900`?"),
    (f"{HEAD}spec: {{model: resnet50, {SLO.replace('98', '0.98')}}}\n", "did you mean `98`?"),
    (f"{HEAD}spec: {{model: resnet5, {SLO}}}\n", "did you mean `resnet50`?"),
    (f"{HEAD}spec: {{model: resnet5, {SLO.replace('80', '-80')}}}\n", "did you mean `resnet50`?"),
]


@pytest.fixture(scope="module")
def declared() -> str:
    return WORLD + service("search")


@pytest.mark.slow
def test_what_is_typed_by_mistake_is_answered_with_what_to_type(run: Run, declared: str) -> None:
    assert run("apply", "-f", "-", stdin=declared).code == 0
    before = run("get", "all", "-A", "-o", "json").out
    poor = []
    for line, needed in WORDS:
        done = run(*line.split())
        if done.code == 0 or done.out or needed not in done.err:
            poor.append((line, done.code, done.err))
    for text, needed in FILES:
        done = run("apply", "-f", "-", stdin=text)
        if done.code == 0 or done.out or needed not in done.err:
            poor.append((text, done.code, done.err))
    assert poor == []
    assert run("get", "all", "-A", "-o", "json").out == before


@pytest.mark.slow
def test_an_action_that_no_entry_has_is_answered_with_those_that_entries_have(run: Run, declared: str) -> None:
    assert run("apply", "-f", "-", stdin=declared).code == 0
    missing = "no entry of the {} was found; the newest entries have: "
    assert missing.format("action 'drop'") + "create" in run("audit", "--verb", "drop").err
    assert missing.format("token 'nobody'") in run("audit", "--by", "nobody").err
