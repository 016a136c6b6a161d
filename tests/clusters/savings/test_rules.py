"""What keeps replicas and nodes as they are: bounds, budgets, spread, missing data, and what others may need."""

from __future__ import annotations

from typing import Any

import pytest

from cli.estate.savings import summarize_limits
from clusters.bill import draw_bill
from clusters.measured import LatencyPromise, MeasuredLoads
from clusters.objects import ClusterObjects, objects_of
from clusters.price_list import read_examples, read_prices
from clusters.reading import read_estate
from clusters.savings import find_savings
from clusters.savings.floors import ReplicaBounds, class_key, draw_bounds, draw_rules
from clusters.savings.kinds import draw_kinds
from tests.clusters.made_up import apart, autoscaler, budget, deployment, leader_worker_set, node, pod, pod_spec
from tests.clusters.savings.fleets import (
    PRICES,
    STEPS,
    assessed,
    day,
    even,
    named,
    nodes,
    of_workload,
    savings_of,
    served,
)

# Ten a second is served by one of four for an hour: so one is enough, and two with a node lost.
ONE_IS_ENOUGH = even(10.0, 4, few=dict.fromkeys(range(40, 44), 1))
SPREAD = ["n0", "n1", "n2", "n3"]


def test_replicas_beyond_the_load_go_and_one_stays_when_a_node_is_lost() -> None:
    savings = savings_of([*nodes(4, 1), *served("search", SPREAD)], {"search": ONE_IS_ENOUGH})
    found = of_workload(savings, "search")
    assert (found.now, found.needed, found.survivors, float(found.gpus_freed)) == (4, 2, 1, 2.0)
    assert found.reasons == ("1 must stay when a node is lost",)
    assert len(savings.nodes) == 2


@pytest.mark.parametrize(
    ("rule", "needed", "reason"),
    [
        ([autoscaler("shop", "search", 3, 9)], 3, "minReplicas of HorizontalPodAutoscaler search"),
        ([budget("shop", "search", minAvailable=2)], 3, "PodDisruptionBudget search"),
        ([budget("shop", "search", minAvailable="75%")], 4, "PodDisruptionBudget search"),
        ([budget("shop", "search", maxUnavailable=0)], 4, "PodDisruptionBudget search lets none go"),
        ([budget("shop", "search", minAvailable="many")], 4, "PodDisruptionBudget search lets none go"),
    ],
)
def test_bounds_and_budgets_stay(rule: list[Any], needed: int, reason: str) -> None:
    savings = savings_of([*nodes(4, 1), *served("search", SPREAD), *rule], {"search": ONE_IS_ENOUGH})
    found = of_workload(savings, "search")
    assert (found.needed, found.reasons) == (needed, (reason,))
    assert len(savings.nodes) == 4 - needed


@pytest.mark.parametrize(
    ("series", "reason"),
    [
        (even(10.0, 4), "no 15 minutes show that fewer serve its peak"),
        (even(10.0, 4, latency=None), "no 15 minutes show that fewer serve its peak"),
        (day([10.0] * 95, [4] * 95, [50.0] * 95), "23.75 hours were measured, and a day is needed"),
        (day([None] * 20 + [10.0] * 76, [1] * STEPS, [50.0] * STEPS), "only 79 % of the time was measured"),
        # by one replica the promise is kept in one quarter of an hour and missed in the next
        (
            day([10.0] * STEPS, [1, 1] + [4] * 94, [50.0, 200.0] + [50.0] * 94),
            "no 15 minutes show that fewer serve its peak",
        ),
    ],
)  # fmt: skip
def test_what_the_data_does_not_show_stays(series: Any, reason: str) -> None:
    savings = savings_of([*nodes(4, 1), *served("search", SPREAD)], {"search": series})
    found = of_workload(savings, "search")
    assert (found.needed, found.reasons) == (4, (reason,))
    assert not savings.nodes


def test_a_rate_of_shorter_requests_shows_nothing_for_longer_ones() -> None:
    ready = [1] * 4 + [4] * 92
    for shorter, needed in ((960.0, 2), (900.0, 4)):
        lengths = (shorter,) * 4 + (1000.0,) * 92
        series = day([10.0] * STEPS, ready, [50.0] * STEPS, input_tokens=lengths, output_tokens=(50.0,) * STEPS)
        savings = savings_of([*nodes(4, 1), *served("search", SPREAD)], {"search": series})
        assert of_workload(savings, "search").needed == needed


def test_the_highest_minutes_of_a_step_need_replicas_too() -> None:
    series = day(
        [10.0] * STEPS, [1] * 4 + [4] * 92, [50.0] * STEPS, peaks_per_second=(10.0,) * 50 + (28.0,) + (10.0,) * 45
    )
    savings = savings_of([*nodes(4, 1), *served("search", SPREAD)], {"search": series})
    assert of_workload(savings, "search").needed == 4  # three, and one for a lost node


def test_replicas_that_must_stand_apart_need_nodes_of_their_own() -> None:
    for spec, freed in ((pod_spec("image:1", 1), 2), (apart(pod_spec("image:1", 1), "search"), 0)):
        labels = {"app": "search"}
        items = [*nodes(4, 4), *deployment("shop", "search", spec, ["n0", "n1"], replicas=3)]
        owner = next(item for item in items if item["kind"] == "ReplicaSet" and item["spec"]["replicas"])
        items.append(pod("shop", "search-waits", spec, "", owner, labels))
        assert len(savings_of(items, {"search": even(10.0, 2)}).nodes) == freed


def test_a_group_ends_from_the_last_replica_on_and_does_not_move() -> None:
    groups = [["n0", "n0"], ["n1", "n1"], ["n2", "n2"]]
    items = [*nodes(3, 2), *leader_worker_set("shop", "chat", pod_spec("image:1", 1), groups)]
    few = even(1.0, 3, few=dict.fromkeys(range(40, 44), 1))
    estate, bill = assessed(items)
    name = estate.workloads[0].name
    passing = {each.name: (0.0,) * STEPS for each in estate.nodes}
    measured = MeasuredLoads(0.0, 900, STEPS, "test", {name: few}, passing)
    savings = find_savings(estate, bill, measured, {name: LatencyPromise(100.0, "test")})
    assert [each.node for each in savings.nodes] == ["n2"]
    assert of_workload(savings, "chat").needed == 2


def test_shared_gpus_bare_pods_and_replicas_that_are_not_ready_stay() -> None:
    shared = [node(f"n{at}", 1, "NVIDIA-L40S", "big", replicas=4, sharing="mps") for at in range(4)]
    savings = savings_of([*shared, *served("search", SPREAD)], {"search": ONE_IS_ENOUGH})
    assert (of_workload(savings, "search").needed, len(savings.nodes)) == (4, 0)
    bare = [pod("lab", f"notebook-{at}", pod_spec("image:1", 1), f"n{at}") for at in range(4)]
    assert not savings_of([*nodes(4, 1), *bare], {}).nodes
    missing = served("search", SPREAD, replicas=5)
    savings = savings_of([*nodes(4, 1), *missing], {"search": ONE_IS_ENOUGH})
    assert of_workload(savings, "search").reasons == ("4 of 5 replicas are ready",)


@pytest.mark.parametrize(("places", "replicas", "reason"), [
    ([*SPREAD, ""], 4, "1 pod waits for a node"),
    ([*SPREAD, "", ""], 4, "2 pods wait for a node"),
    (SPREAD, 3, "4 replicas run, and 3 are declared"),
])  # fmt: skip
def test_pods_beyond_what_is_declared_keep_all_and_are_the_reason(
    places: list[str], replicas: int, reason: str
) -> None:
    savings = savings_of([*nodes(4, 1), *served("search", places, replicas=replicas)], {"search": ONE_IS_ENOUGH})
    assert of_workload(savings, "search").reasons == (reason,)


def test_an_empty_node_stays_while_others_may_need_it() -> None:
    items = [*nodes(4, 2), *served("search", ["n0", "n0"])]
    few = {"search": even(10.0, 2)}
    assert len(savings_of(items, few).nodes) == 2  # on the third they restart if theirs is lost
    assert not savings_of(items, few, passing=1.0).nodes  # jobs stood on all of them at once
    unknown = savings_of(items, few, passing=None)
    assert not unknown.nodes
    assert "whether jobs or people use it" in str(unknown.unknown[0])
    waits = pod("lab", "notebook", pod_spec("image:1", 2), "")
    assert len(savings_of([*items, waits], few).nodes) == 1


@pytest.mark.parametrize(("idle", "freed"), [(1, 0), (2, 1)])
def test_room_in_which_replicas_of_a_lost_node_restart_stays(idle: int, freed: int) -> None:
    items = [*nodes(1 + idle, 4), *served("search", ["n0"] * 4)]
    savings = savings_of(items, {"search": even(40.0, 4)})
    assert len(savings.nodes) == freed
    groups = [*nodes(2 + idle, 2), *leader_worker_set("shop", "chat", pod_spec("image:1", 2), [["n0", "n1"]])]
    assert len(savings_of(groups, {}).nodes) == freed


HOST_VOLUME = {"name": "data", "hostPath": {"path": "/data"}}
AWAY = {"requiredDuringSchedulingIgnoredDuringExecution": [
    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "ranker"}}}
]}  # fmt: skip
ONLY_HERE = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
    {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1", "n2"]}]}
]}}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "freed"),
    [
        ({}, ["n0"]),
        ({"nodeSelector": {"kubernetes.io/hostname": "n0"}}, []),
        ({"affinity": {"nodeAffinity": ONLY_HERE}}, []),
        ({"affinity": {"podAntiAffinity": AWAY}}, []),
        ({"volumes": [HOST_VOLUME]}, []),
        ({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}, []),
        ({"volumes": [{"name": "data", "emptyDir": {}}]}, ["n0"]),
    ],
)
def test_a_pod_that_is_bound_to_its_place_keeps_its_node(more: dict[str, Any], freed: list[str]) -> None:
    spec = {**pod_spec("image:1", 1), **more}
    items = [*nodes(3, 4), *deployment("shop", "search", spec, ["n0"])]
    items += deployment("shop", "ranker", {**pod_spec("image:1", 1), "volumes": [HOST_VOLUME]}, ["n1", "n1", "n2"])
    savings = savings_of(items, {"search": even(10.0, 1), "ranker": even(30.0, 3)})
    assert [each.node for each in savings.nodes] == freed


def test_pods_move_to_no_node_whose_taint_they_do_not_tolerate() -> None:
    tolerated = {"tolerations": [{"key": "team", "operator": "Exists"}]}
    for more, freed in (({}, 0), (tolerated, 1)):
        items = nodes(3, 4)
        for tainted in items[1:]:
            tainted["spec"]["taints"] = [{"key": "team", "value": "ranker", "effect": "NoSchedule"}]
        items += deployment("shop", "search", {**pod_spec("image:1", 1), **more}, ["n0"])
        bound = {**pod_spec("image:1", 1), **tolerated, "volumes": [HOST_VOLUME]}
        items += deployment("shop", "ranker", bound, ["n1", "n1", "n2"])
        savings = savings_of(items, {"search": even(10.0, 1), "ranker": even(30.0, 3)})
        assert len(savings.nodes) == freed


@pytest.mark.parametrize(
    ("strategy", "stuck"),
    [
        ({}, True),  # a quarter of two is none
        ({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}, True),
        ({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}, False),
        ({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": "50%"}}, False),
        ({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}, False),
        ({"type": "Recreate"}, False),
    ],
)
def test_a_rollout_that_finds_no_room_for_its_next_pod_is_named(strategy: dict[str, Any], stuck: bool) -> None:
    items = [*nodes(3, 1), *served("search", ["n0", "n1"])]
    next(item for item in items if item["kind"] == "Deployment")["spec"]["strategy"] = strategy
    # its peak is served by one, and both restart nowhere else
    savings = savings_of(items, {"search": even(10.0, 2, few=dict.fromkeys(range(40, 44), 1))})
    assert [each.node for each in savings.nodes] == ["n2"]
    assert savings.stuck_rollouts == ((named("search"),) if stuck else ())


def test_an_autoscaler_finds_room_for_its_peak() -> None:
    items = [*nodes(4, 1), *served("search", ["n0"]), autoscaler("shop", "search", 1, 9)]
    series = day([2.0] * 48 + [30.0] * 48, [1] * 48 + [3] * 48, [50.0] * STEPS)
    savings = savings_of(items, {"search": series})
    assert (of_workload(savings, "search").needed, len(savings.nodes)) == (3, 1)
    silent = savings_of(items, {})
    assert not silent.nodes  # nobody knows how many it had
    assert of_workload(silent, "search").reasons == ("no load was measured",)


def test_the_largest_number_of_replicas_takes_no_longer() -> None:
    largest = [*nodes(4, 1), *served("search", ["n0"]), autoscaler("shop", "search", 1, 2**31 - 1)]
    estate, bill = assessed([*largest, *served("ranker", ["n1"])])
    rules = {each.name: draw_rules(each, estate.pods_of(each.name), estate, "no load") for each in estate.workloads}
    (kind,) = draw_kinds(estate, bill.nodes, rules, {each.name: (0.0,) * STEPS for each in estate.nodes})
    assert len(kind.waiting) == 5  # one more than all nodes hold
    assert not savings_of(largest, {}).nodes


def test_nodes_of_another_pool_take_no_pods() -> None:
    items = [node("a0", 4, "NVIDIA-L40S", "big", pool="a"), node("b0", 4, "NVIDIA-L40S", "big", pool="b")]
    estate, _ = assessed(items)
    assert class_key(estate, "a0") != class_key(estate, "b0")
    items += [*served("search", ["a0"]), *served("ranker", ["b0"])]
    assert not savings_of(items, {"search": even(1.0, 1), "ranker": even(1.0, 1)}).nodes


@pytest.mark.parametrize("kind", ["HorizontalPodAutoscaler", "ScaledObject", "PodDisruptionBudget", "Pod"])
def test_all_stays_where_a_list_that_may_keep_it_was_not_read(kind: str) -> None:
    lists = objects_of([*nodes(4, 2), *served("search", SPREAD), *served("ranker", ["n0"])]).lists
    estate = read_estate(ClusterObjects({name: found for name, found in lists.items() if name != kind}))
    bill = draw_bill(estate, read_examples(), read_prices(PRICES, "prices.yaml"))
    passing = {each.name: (0.0,) * STEPS for each in estate.nodes}
    loads = {named("search"): ONE_IS_ENOUGH, named("ranker"): even(10.0, 1)}
    measured = MeasuredLoads(0.0, 900, STEPS, "test", loads, passing)
    savings = find_savings(estate, bill, measured, {})
    assert (savings.nano_per_hour, float(savings.gpus_freed)) == (0, 0.0)
    assert f"they may keep replicas: {kind}; so all replicas and nodes stay" in str(savings.unknown[0])


def test_hours_are_those_of_which_something_is_known() -> None:
    estate, bill = assessed([*nodes(4, 1), *served("search", SPREAD)])
    young = day([None] * 88 + [10.0] * 8, [None] * 88 + [4] * 8, [None] * 88 + [50.0] * 8)
    savings = find_savings(estate, bill, MeasuredLoads(0.0, 900, STEPS, "test", {named("search"): young}, {}), {})
    assert savings.hours == 2.0
    assert "only 8 % of the time was measured" in str(savings.unknown)
    assert "a --from of no longer than it has them" in str(savings.unknown)


@pytest.mark.parametrize(("gaps", "freed", "sentence"), [(2, 2, "is not known for 0.5 hours"), (20, 1, "not measured")])
def test_few_gaps_in_what_jobs_held_are_said_and_many_keep_empty_nodes(gaps: int, freed: int, sentence: str) -> None:
    items = [*nodes(4, 1), *served("search", SPREAD[:3])]
    few = even(10.0, 3, few=dict.fromkeys(range(40, 44), 1))
    savings = savings_of(items, {"search": few}, gaps=gaps)
    assert len(savings.nodes) == freed
    assert any(sentence in str(figure) for figure in savings.unknown)


def test_a_load_beside_no_known_replicas_and_a_load_above_the_maximum_do_not_bring_the_limit_below_l0() -> None:
    items = [*nodes(10, 1), *served("search", SPREAD[:1])]
    unknown = day([200.0] * 9 + [10.0] * 87, [None] * 9 + [1] * 87, [50.0] * STEPS)
    capped = day([10.0] * STEPS, [1] * 4 + [3] * 92, [50.0] * STEPS, fewest_replicas=(1.0,) * 4 + (3.0,) * 92)
    for more, series in (([], unknown), ([autoscaler("shop", "search", 1, 1)], capped)):
        savings = savings_of([*items, *more], {"search": series})
        assert 0 < savings.nano_per_hour <= savings.limit_nano_per_hour


def test_a_missed_window_of_requests_of_unknown_lengths_counts() -> None:
    ready = [1] * 4 + [2] * 40 + [4] * 52
    missed = [50.0] * 4 + [400.0] * 40 + [50.0] * 52
    for lengths in ((1000.0,) * STEPS, (1000.0,) * 4 + (None,) * 40 + (1000.0,) * 52):
        series = day([10.0] * STEPS, ready, missed, input_tokens=lengths, output_tokens=lengths)
        savings = savings_of([*nodes(4, 1), *served("search", SPREAD)], {"search": series})
        assert (of_workload(savings, "search").needed, len(savings.nodes)) == (4, 0)


def test_the_limit_says_that_it_is_of_nodes_whose_price_is_known() -> None:
    items = [*nodes(4, 1), *served("search", SPREAD)]
    for more, is_said in (([], False), ([node("unpriced", 1, "NVIDIA-L40S", "odd")], True)):
        savings = savings_of([*items, *more], {"search": ONE_IS_ENOUGH})
        _, bill = assessed([*items, *more])
        assert [("of what priced nodes cost" in text) for text in summarize_limits(bill, savings)] == [is_said] * 2


def test_replicas_without_end_that_somebody_declares_cost_no_time() -> None:
    """Anybody who may write a Deployment may declare them; none of them finds room."""
    greedy = served("greedy", ["n0"], replicas=2**31 - 1)
    items = [*nodes(4, 2), *served("search", SPREAD), *greedy]
    savings = savings_of(items, {"search": ONE_IS_ENOUGH})
    assert of_workload(savings, "greedy").reasons == (f"1 of {2**31 - 1} replicas are ready",)
    assert not savings.nodes


@pytest.mark.parametrize(("least", "most"), [(2**31 - 1, 2**31 - 1), (2, 2**31 - 1)])
def test_an_autoscaler_without_end_decides_no_replicas_without_end(least: int, most: int) -> None:
    estate, _ = assessed([*nodes(4, 1), *served("search", SPREAD), autoscaler("shop", "search", least, most)])
    [workload] = estate.workloads
    bounds = draw_bounds(workload, estate.pods_of(workload.name), estate)
    if least > 2:
        assert bounds == "minReplicas of HorizontalPodAutoscaler search is above 10,000"
    else:
        assert isinstance(bounds, ReplicaBounds)
        assert bounds.most == 10_000
