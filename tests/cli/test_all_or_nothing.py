"""A verb that fails has changed nothing: whatever names and manifests it was given, bad ones among good ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.conftest import WORLD, Run, service
from tests.support.soak import scaled

NODES = "".join(
    f"---\napiVersion: gpuwright/v1\nkind: Node\nmetadata: {{name: node-{number}}}\n"
    "spec: {gpuType: v100-16gb, gpus: 4, cpuCores: 48, memoryGib: 256}\n"
    for number in (2, 3)
)
TENANT = "---\napiVersion: gpuwright/v1\nkind: Tenant\nmetadata: {name: lab}\nspec: {}\n"
GOOD_PLACES, BAD_PLACES = ("node-1", "node-2/1", "node-3/0", "node-3"), ("node-9", "node-1/9", "node-2/x", "shop/a")
GOOD_NODES, BAD_NODES = ("node-1", "node-2", "node-3"), ("node-9", "node-1/0")
GOOD_SERVICES, BAD_SERVICES = ("shop/a", "shop/b", "shop/c"), ("shop/nope", "lab/a", "shop//a")
NEW_MANIFESTS = (service("new"), service("other", latency_ms=40), TENANT)
OLD_MANIFESTS = (service("a"), service("b"))
BAD_MANIFESTS = (
    service("bad", latency_ms=-1), service("lost").replace("resnet50", "resnet5"), "---\nkind: Nothing\n",
    service("Bad_Name"), "---\n- a\n",
)  # fmt: skip
GONE_MANIFESTS = (service("gone"), service("gone-too"))


class ChangingVerb(NamedTuple):
    """A verb that changes something, and the names or manifests that it takes."""

    words: tuple[str, ...]
    good: Sequence[str] = ()
    bad: Sequence[str] = ()
    rest: tuple[str, ...] = ()
    is_input: bool = False  # they are its standard input


def list_verbs(tokens: Sequence[str]) -> list[ChangingVerb]:
    """Returns the verbs that change something on the server."""
    of_plans = [
        ChangingVerb(("plan", action), (), ("7", "9999"))
        for action in ("approve", "reject", "pause", "resume", "abort", "rollback")
    ]
    return [
        *of_plans,
        *(ChangingVerb((verb,), GOOD_PLACES, BAD_PLACES) for verb in ("cordon", "uncordon", "drain")),
        ChangingVerb(("reclaim",), GOOD_NODES, BAD_NODES),
        ChangingVerb(("reclaim",), GOOD_NODES, BAD_NODES, ("--withdraw",)),
        ChangingVerb(("delete", "service"), GOOD_SERVICES, BAD_SERVICES, ("--yes",)),
        ChangingVerb(("delete", "node"), GOOD_NODES, BAD_NODES, ("--force", "--yes")),
        ChangingVerb(("delete", "-f", "-", "--yes"), OLD_MANIFESTS, (*GONE_MANIFESTS, *BAD_MANIFESTS), (), True),
        ChangingVerb(("apply", "-f", "-"), NEW_MANIFESTS, BAD_MANIFESTS, (), True),
        ChangingVerb(("apply", "--set", "old", "--prune", "--yes", "-f", "-"), NEW_MANIFESTS, BAD_MANIFESTS, (), True),
        ChangingVerb(("edit", "service"), (), BAD_SERVICES),
        ChangingVerb(("token", "revoke"), tokens, ("nosuch", "no such")),
        ChangingVerb(("token", "create", "--scope", "viewer", "--tenant"), (), ("no tenant", "Shop")),
        ChangingVerb(("token", "create", "--scope", "node", "--node"), (), ("node 9", "Node")),
        ChangingVerb(("profile", "resnet50", "--on"), (), BAD_PLACES),
        ChangingVerb(("profile", "fresh", "--file", "fresh.onnx", "--on"), (), ("node-9", "node-1/9", "node-2/x")),
        ChangingVerb(("profile", "--stop"), (), ("c-nosuch",)),
        ChangingVerb(("scale", "approve"), (), ("7", "9999")),
        ChangingVerb(("scale", "reject"), (), ("7", "9999")),
    ]


class TriedCommand(NamedTuple):
    verb: ChangingVerb
    given: tuple[str, ...]


def draw_commands(verbs: Sequence[ChangingVerb]) -> st.SearchStrategy[TriedCommand]:
    """Draws a verb, some good names or manifests and at least one bad one, in any order."""

    def mix(verb: ChangingVerb) -> st.SearchStrategy[TriedCommand]:
        good = st.lists(st.sampled_from(verb.good), unique=True, max_size=3) if verb.good else st.just([])
        bad = st.lists(st.sampled_from(verb.bad), unique=True, min_size=1, max_size=2 if verb.good else 1)
        mixed = st.tuples(good, bad).flatmap(lambda parts: st.permutations([*parts[0], *parts[1]]))
        return mixed.map(lambda given_: TriedCommand(verb, tuple(given_)))

    return st.sampled_from(verbs).flatmap(mix)


@pytest.mark.slow
def test_a_verb_that_fails_has_changed_nothing(run: Run) -> None:
    everything = WORLD + NODES + "".join(service(name) for name in ("a", "b", "c"))
    assert run("apply", "--set", "old", "-f", "-", stdin=everything).code == 0
    made = [run("token", "create", "--scope", "viewer", "-o", "json") for _ in range(2)]
    tokens = [json.loads(one.out)["id"] for one in made]
    assert run("cordon", "node-2").code == run("reclaim", "node-3", "--in", "1h").code == 0
    looks: list[Callable[[], str]] = [
        lambda: run("get", "all", "-A", "-o", "json").out,
        lambda: run("cordon", "-o", "json").out,
        lambda: run("token", "list", "-o", "json").out,
        lambda: run("profile", "--list", "--json").out,
        lambda: run("audit", "--outcome", "done", "--limit", "1", "-o", "json").out,
    ]

    def look() -> list[str]:
        return [without_uses(one()) for one in looks]

    before = look()

    def check(tried: TriedCommand) -> None:
        words, given_, rest = tried.verb.words, tried.given, tried.verb.rest
        words = (*words, *rest) if tried.verb.is_input else (*words, *given_, *rest)
        done = run(*words, stdin="".join(given_) if tried.verb.is_input else "")
        assert done.code != 0, (words, given_, done.out)
        assert done.out == "", (words, given_)
        assert done.err
        assert look() == before, (words, given_)

    verbs = list_verbs(tokens)
    for verb in verbs:  # a good one first, which a verb that goes from one to the next would have changed
        for bad in verb.bad:
            check(TriedCommand(verb, (*verb.good[:1], bad)))
    settings(max_examples=scaled(1000, 40, 10), deadline=None)(given(draw_commands(verbs))(check))()


def without_uses(text: str) -> str:
    """Returns the answer without the times at which tokens were used."""
    found = json.loads(text)
    for item in found if isinstance(found, list) else ():
        item.pop("lastUsedAt", None)
    return json.dumps(found)
