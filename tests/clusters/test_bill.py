"""The bill: what machines cost, by whose price, divided by the GPUs that workloads hold, to the billionth."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from clusters.bill import Bill, draw_bill
from clusters.demo import read_demo
from clusters.objects import objects_of
from clusters.price_list import PricesRefused, read_examples, read_prices
from clusters.reading import read_estate
from tests.clusters import demo
from tests.clusters.made_up import Item, deployment, node, pod_spec

OURS = """\
prices:
- {node: special, perHour: 7.5}
- {instanceType: big, region: eu-1, perHour: 9.0}
- {instanceType: big, perHour: 8.0}
- {gpu: NVIDIA-L4, perGpuHour: 0.5, purchase: owned}
- {gpu: NVIDIA-L4, perGpuHour: 0.3}
"""


def bill_of(items: Sequence[Item], prices: str = OURS) -> Bill:
    return draw_bill(read_estate(objects_of(items)), read_examples(), read_prices(prices, "prices.yaml"))


def plain_sum(items: Sequence[dict[str, Any]], text: str) -> Decimal:
    """What is paid for the demo's nodes, from its objects alone: no code of the product is used."""
    prices, left = yaml.safe_load(text), Decimal(0)
    examples = yaml.safe_load((demo.FILE.parent / "example_prices.yaml").read_text())["prices"]
    for reservation in prices["reservations"]:
        left += Decimal(str(reservation["perHour"])) * reservation["count"]
    reserved = {reservation["instanceType"] for reservation in prices["reservations"]}
    for item in items:
        labels = item["metadata"].get("labels", {})
        kind = labels.get("node.kubernetes.io/instance-type")
        if item["kind"] != "Node" or "nvidia.com/gpu.count" not in labels or kind in reserved:
            continue
        spot = labels["eks.amazonaws.com/capacityType"] == "SPOT"
        table = prices["prices"] if spot else examples
        (price,) = (Decimal(str(entry["perHour"])) for entry in table if entry["instanceType"] == kind)
        left += price
    return left


def test_the_demo_costs_the_plain_sum_of_its_machines_to_the_cent() -> None:
    objects, text = read_demo()
    bill = draw_bill(read_estate(objects), read_examples(), read_prices(text, "demo"))
    wanted = plain_sum(list(demo.items()), text)
    assert Decimal(bill.nano_per_hour) / 10**9 == wanted
    assert wanted.quantize(Decimal("0.01"), ROUND_HALF_UP) == Decimal("166.07")


def test_the_recorded_demo_is_what_its_module_makes() -> None:
    assert read_demo()[0].lists == objects_of(demo.items()).lists


def test_rows_add_up_to_nodes_and_each_workload_pays_for_what_it_holds() -> None:
    items = [
        node("special", 4, "NVIDIA-L40S", "big"),
        *deployment("shop", "ranker", pod_spec("r:1", 1), ["special"] * 3),
    ]
    bill = bill_of(items)
    assert [(row.label, row.nano_per_hour) for row in bill.rows] == [
        ("shop/Deployment/ranker", 5_625_000_000),
        ("idle: NVIDIA-L40S", 1_875_000_000),
    ]


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 10), st.integers(1, 12), st.integers(0, 9)), min_size=1, max_size=6))
def test_rows_add_up_to_the_last_billionth_however_gpus_are_shared(shapes: list[tuple[int, int, int]]) -> None:
    items: list[Item] = []
    for at, (gpus, replicas, pods) in enumerate(shapes):
        items.append(node(f"n{at}", gpus, "NVIDIA-L4", "own", replicas=replicas))
        items += deployment("x", f"w{at % 2}-{at}", pod_spec("i:1", 1), [f"n{at}"] * min(pods, gpus * replicas))
    bill = bill_of(items, "prices:\n- {instanceType: own, perHour: 0.333333333}\n")
    assert bill.nano_per_hour == sum(price.nano_per_hour or 0 for price in bill.nodes) == 333_333_333 * len(shapes)
    assert sum(row.gpus for row in bill.rows) == sum(gpus for gpus, _, _ in shapes)


@pytest.mark.parametrize(
    ("item", "per_hour", "source"),
    [
        (node("special", 1, "NVIDIA-L4", "big"), 7.5, "prices.yaml"),
        (node("n", 8, "NVIDIA-L4", "big", region="eu-1"), 9.0, "prices.yaml"),
        (node("n", 8, "NVIDIA-L4", "big"), 8.0, "prices.yaml"),
        (node("n", 8, "NVIDIA-L4", "other"), 2.4, "prices.yaml"),
        (node("n", 8, "NVIDIA-L4", "other", purchase="SPOT"), None, "unknown"),
        (node("n", 4, "NVIDIA-L40S", "g6e.12xlarge"), 10.4926, "example prices, 2025-06"),
        (node("n", 4, "NVIDIA-L40S", "g6e.12xlarge", region="eu-1"), None, "unknown"),
        (node("n", 4, "NVIDIA-L40S", "g6e.12xlarge", purchase="SPOT"), None, "unknown"),
    ],
)
def test_the_first_entry_that_fits_is_the_price_and_examples_come_last(
    item: Item, per_hour: float | None, source: str
) -> None:
    (price,) = bill_of([item]).nodes
    assert price.nano_per_hour == (None if per_hour is None else round(per_hour * 10**9))
    assert price.source == source


def test_a_node_without_a_price_is_named_and_its_gpus_stand_beside_the_sum() -> None:
    items = [
        node("n1", 4, "NVIDIA-L40S", "own"),
        node("n2", 4, "NVIDIA-L40S", "big"),
        *deployment("shop", "ranker", pod_spec("r:1", 1), ["n1", "n2"]),
    ]
    bill = bill_of(items)
    assert [(row.gpus, row.unpriced_gpus, row.nano_per_hour) for row in bill.rows] == [
        (Fraction(2), Fraction(1), 2_000_000_000),
        (Fraction(6), Fraction(3), 6_000_000_000),
    ]
    (unknown,) = bill.unknown
    assert str(unknown) == "node n1: no price is known of own in us-east-1, on demand; give one in the file of --prices"


@pytest.mark.parametrize(("purchase", "is_priced", "is_committed"), [
    ("owned", True, True), ("reserved", True, True), ("onDemand", True, False), ("spot", False, False),
])  # fmt: skip
def test_an_entry_says_how_a_node_without_a_label_of_it_is_paid(
    purchase: str, is_priced: bool, is_committed: bool
) -> None:
    bare = node("dgx-1", 8, "NVIDIA-L40S", "dgx", purchase="")
    bare["spec"] = {}
    bill = bill_of([bare], f"prices: [{{gpu: NVIDIA-L40S, purchase: {purchase}, perGpuHour: 0.62}}]")
    (price,) = bill.nodes
    assert (price.nano_per_hour == 4_960_000_000, price.is_committed) == (is_priced, is_committed)
    assert any("no label says how it is paid for" in str(figure) for figure in bill.unknown) != is_priced


def test_reserved_machines_cost_what_was_agreed_and_those_that_do_not_run_are_paid_too() -> None:
    nodes = [node(f"n{at}", 8, "NVIDIA-L4", "big") for at in range(3)]
    nodes.append(node("spot", 8, "NVIDIA-L4", "big", purchase="SPOT"))
    prices = OURS + "- {instanceType: big, purchase: spot, perHour: 2}\nreservations:\n"
    bill = bill_of(nodes, prices + "- {instanceType: big, count: 2, perHour: 5}\n")
    assert [(price.nano_per_hour, price.is_committed) for price in bill.nodes] == [
        (5 * 10**9, True), (5 * 10**9, True), (8 * 10**9, False), (2 * 10**9, False),
    ]  # fmt: skip
    bill = bill_of(nodes, prices + "- {instanceType: big, count: 7, region: us-east-1, perHour: 5}\n")
    assert bill.rows[-1].label == "reserved, not running: 4 big in us-east-1"
    assert bill.nano_per_hour == (7 * 5 + 2) * 10**9


def test_examples_in_another_currency_are_not_mixed_in() -> None:
    prices = "currency: EUR\nprices:\n- {instanceType: own, perHour: 1}\n"
    (price,) = bill_of([node("n", 4, "NVIDIA-L40S", "g6e.12xlarge")], prices).nodes
    assert price.nano_per_hour is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("prices: [", "is not YAML"),
        ("- 1", "is not a mapping with `prices`"),
        ("{}", "has neither `prices` nor `reservations`"),
        ("prices: 3", "prices is not a list"),
        ('currency: "\\e[A"\nprices: [{gpu: x, perHour: 1}]', r"currency '\x1b[A' is not an ISO 4217 code"),
        ("currency: euro\nprices: [{gpu: x, perHour: 1}]", "currency 'euro' is not an ISO 4217 code"),
        ("prices: [{gpu: x, perHour: -1}]", "prices[0]: perHour -1 is outside 0..1e+08"),
        ("prices: [{gpu: x, perHour: 1e3}]", "prices[0]: perHour '1e3' is text in YAML; write it as 1000 or 1.0e+3"),
        ("prices: [{gpu: x}]", "prices[0] needs either perHour, of the node, or perGpuHour"),
        ("prices: [{perHour: 1}]", "prices[0] names no nodes"),
        ("prices: [{gpu: x, perHour: 1, colour: red}]", "prices[0]: there is no field 'colour'"),
        ("prices: [{gpu: x, perHour: 1, purchase: rent}]", "purchase 'rent' is not one of owned"),
        ("reservations: [{instanceType: x, count: 0, perHour: 1}]", "reservations[0]: count 0 is outside 1..100000"),
        ("reservations: [{count: 1, perHour: 1}]", "reservations[0] needs an instanceType"),
    ],
)
def test_a_file_of_prices_is_refused_with_each_fault(text: str, fault: str) -> None:
    with pytest.raises(PricesRefused) as refused:
        read_prices(text, "prices.yaml")
    assert fault in "\n".join(refused.value.faults)


def test_a_price_of_opencost_is_not_added_to_those_of_another_currency() -> None:
    estate = read_estate(objects_of([node("n1", 1, "NVIDIA-L4", "own"), node("n2", 1, "NVIDIA-L4", "own")]))
    for currency, found in (("USD", [1, 7]), ("EUR", [1, None])):
        given = read_prices(f"currency: {currency}\nprices: [{{node: n1, perHour: 1.0e-9}}]", "prices.yaml")
        bill = draw_bill(estate, read_examples(), given, {"n1": 5, "n2": 7})
        assert [price.nano_per_hour for price in bill.nodes] == found
        assert bill.currency == currency
