"""Makes the recorded problems from seeds: the families, and what each feature of the contract adds to one of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from benchmarks.families import family
from benchmarks.manifests import manifests
from solvers.planning.solve import SolveBudget, find
from solvers.planning.wire import to_json
from tests.net.corpus import Series, SeriesHead
from tests.net.problems import read_problem

Document: TypeAlias = dict[str, Any]
Change: TypeAlias = Callable[[list[Document]], None]

ROOT = Path(__file__).parents[2]
WORK = 40
NOON, SPRING = "2026-12-01T12:00:00Z", "2027-04-01T12:00:00Z"
FAMILIES = ("A", "B", "C", "D", "E", "F")
SIZES = ((8, 4), (16, 12), (40, 20))
PRIORITIES = (20, 300, 60, 1000, 40, 200, 80, 500, 120, 30, 700, 160)
PAPERS = ("hetsev", "mudi", "inss", "morak", "oltunes")
TAGS = {"C": "two variants", "D": "share billing", "E": "power budget", "F": "jobs"}
TOGETHER = (("spread", "nodes"), ("tenant", "energy"), ("power", "running"), ("spot", "nodes"))  # features


def draw_problems() -> Iterator[Series]:
    """Yields the problems: sixty and three."""
    for letter in FAMILIES:
        for seed, (gpus, services) in enumerate(SIZES):
            tags = (f"family {letter}", *([TAGS[letter]] if letter in TAGS else []))
            yield _family(letter, gpus, services, seed, tags)
    yield _family("A", 100, 50, 3, ("family A", "large"))
    yield _family("C", 100, 50, 4, ("family C", TAGS["C"], "large"))
    yield _family("G30", 16, 12, 5, ("family A", "light"))
    yield _family("G95", 16, 12, 6, ("family A", "crowded"))
    for seed, (gpus, services) in enumerate(((16, 8), (24, 12), (40, 20))):
        yield _family("L", gpus, services, seed, ("language models",))
    for seed, planner in enumerate(PAPERS):
        yield _family("A", 16, 12, 20 + seed, (f"planner {planner}",), _with_policy(planner=planner), planner)
    for name, change, tags in FEATURES:
        for seed in (30, 31):
            yield _family("A", 16, 12, seed, tags, change, name)
    for seed in (50, 51, 52):
        yield _family("F", 12, 30, seed, ("jobs", "jobs waiting"), crowd_jobs, "priorities")
    yield _example("examples/quickstart", ("jobs",))
    yield _example("examples/several-gpus", ("language models",))
    yield _example("examples/testbed", ())
    yield _example("lab/testbeds/morak", ())
    for pair in TOGETHER:
        features = [feature for feature in FEATURES if feature[0] in pair]
        tags = ("jobs", *(tag for _, _, found in features for tag in found))
        for seed in (40, 41):
            yield _family("F", 24, 14, seed, tags, _all_of([change for _, change, _ in features]), "-".join(pair))


def _family(
    letter: str,
    gpus: int,
    services: int,
    seed: int,
    tags: tuple[str, ...],
    change: Change | None = None,
    what: str = "",
) -> Series:
    documents = manifests(family(letter, gpus, services, seed))
    if change:
        change(documents)
    parts = ["family", letter, f"{gpus}x{services}", *([what] if what else []), str(seed)]
    return _series("-".join(parts), documents, tags, seed)


def _example(path: str, tags: tuple[str, ...]) -> Series:
    file = (ROOT / path).with_suffix(".yaml")
    read = [document for document in yaml.safe_load_all(file.read_text()) if document]
    documents = json.loads(json.dumps(read, default=lambda moment: moment.isoformat()))  # keys become strings
    return _series(f"example-{file.stem}", documents, ("example", *tags), 0)


def _series(name: str, documents: list[Document], tags: tuple[str, ...], seed: int) -> Series:
    return Series(name, SeriesHead("problem", tags, WORK, seed, [*documents]))


def _each(documents: list[Document], kind: str) -> list[Document]:
    return [document["spec"] for document in documents if document["kind"] == kind]


def _all_of(changes: list[Change]) -> Change:
    def change(documents: list[Document]) -> None:
        for each in changes:
            each(documents)

    return change


def _with_policy(**fields: Any) -> Change:
    def change(documents: list[Document]) -> None:
        _each(documents, "Policy")[0].update(fields)

    return change


def with_availability(**rules: Any) -> Change:
    """Every second service stands on several nodes, and half of the nodes are spot."""

    def change(documents: list[Document]) -> None:
        for service in _each(documents, "Service")[::2]:
            service["availability"] = dict(rules)
            service["minInstances"] = max(2, service["minInstances"])
        for node in _each(documents, "Node")[::2]:
            node["purchase"] = "spot"

    return change


def limit_tenant(documents: list[Document]) -> None:
    """The tenant may have less than its services need."""
    tenant = next(document for document in documents if document["kind"] == "Service")["metadata"]["tenant"]
    spec = {"limit": {"gpus": 6, "pricePerHour": 12}}
    documents.append({"apiVersion": "gpuwright/v1", "kind": "Tenant", "metadata": {"name": tenant}, "spec": spec})


def limit_power(documents: list[Document]) -> None:
    """The fleet may draw what all idle GPUs draw, and a third of the rest."""
    types = {d["metadata"]["name"]: d["spec"] for d in documents if d["kind"] == "GpuType"}
    nodes = [(node["gpus"], types[node["gpuType"]]) for node in _each(documents, "Node")]
    watts = sum(gpus * (2 * of["idleW"] + of["maxW"]) / 3 for gpus, of in nodes)
    _each(documents, "Policy")[0]["powerBudgetW"] = round(watts)


def _cap_nodes(documents: list[Document]) -> None:
    types = {d["metadata"]["name"]: d["spec"] for d in documents if d["kind"] == "GpuType"}
    for node in _each(documents, "Node"):
        node["capW"] = round(0.7 * types[node["gpuType"]]["maxW"])


def crowd_jobs(documents: list[Document]) -> None:
    """More jobs with a deadline than services leave room for, of unequal priority."""
    for service in _each(documents, "Service"):
        service["ratePerSecond"] /= 2
    for document in [document for document in documents if document["kind"] == "Job"]:
        document["spec"]["deadline"] = SPRING
        for number, priority in enumerate(PRIORITIES):
            other = deepcopy(document)
            other["metadata"]["name"] += f"-{number}"
            other["spec"]["priority"] = priority
            documents.append(other)
    documents.append(_state({"now": NOON}))


def _start_from_running(documents: list[Document]) -> None:
    """What serves two thirds of the rates runs already."""
    before = deepcopy(documents)
    for service in _each(before, "Service"):
        service["ratePerSecond"] *= 2 / 3
    problem = read_problem(_series("running", before, (), 0))
    plan = to_json(find(problem, SolveBudget(None, WORK), alone=True).plan, problem)
    fields = ("service", "node", "gpu", "variant", "batch", "batchTimeoutMs", "smPercent", "memoryGib", "clockMhz")
    running = [{name: dict(line)[name] for name in (*fields, "ratePerSecond")} for line in plan["instances"]]
    documents.append(_state({"now": NOON, "running": running}))


def _state(spec: Document) -> Document:
    return {"apiVersion": "gpuwright/v1", "kind": "State", "metadata": {"name": "now"}, "spec": spec}


FEATURES: tuple[tuple[str, Change, tuple[str, ...]], ...] = (
    ("spread", with_availability(spread="node"), ("availability",)),
    ("survive", with_availability(surviveNodes=1), ("availability",)),
    ("spot", with_availability(spread="gpu", maxSpotShare=0.5), ("availability",)),
    ("nodes", _with_policy(pricing="node"), ("node billing",)),
    ("tenant", limit_tenant, ("tenant limit",)),
    ("power", limit_power, ("power budget",)),
    ("caps", _cap_nodes, ("power budget",)),
    ("energy", _with_policy(energyPricePerKwh=0.3), ("energy",)),
    ("running", _start_from_running, ("running",)),
)
