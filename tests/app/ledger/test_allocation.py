"""What the ledger makes of intervals is what the judge makes of them, to the last billionth."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.ledger.allocation import Lines, allocate, cost, differences
from app.ledger.division import Shares, divide
from app.ledger.facts import FOREVER, HOUR, QUARTER, AllocatedAmount, GpuRate, NodeUsage, OwnedGpus, Usage
from tests.app.ledger.judge import ALWAYS, EPOCH, MICROSECOND, Held, Paid, Priced, judged
from tests.support.soak import scaled

START = datetime(2026, 3, 29, tzinfo=UTC)  # the day that clocks are put forward in Europe
KIND = ("v100-16gb", "eu", "spot")
SPAN = timedelta(hours=3)

seconds = st.one_of(
    st.integers(0, int(SPAN.total_seconds())).map(lambda n: timedelta(seconds=n)),
    st.integers(0, 12).map(lambda n: n * timedelta(minutes=15)),
    st.integers(0, SPAN // MICROSECOND).map(lambda n: n * MICROSECOND),
)
percents = st.one_of(st.integers(0, 100).map(float), st.floats(0, 100))
gibs = st.one_of(st.sampled_from([0.0, 1.9, 2.0, 16.0, 20.0]), st.floats(0, 40))


@st.composite
def held(draw: st.DrawFn, number: int) -> Held:
    start, stop = sorted((draw(seconds), draw(seconds)))
    return Held(
        id=f"copy-{number}", node="node-1", gpu=draw(st.integers(0, 1)), tenant=draw(st.sampled_from(["shop", "lab"])),
        service=draw(st.sampled_from(["search", "tags"])), sm_percent=draw(percents), memory_gib=draw(gibs),
        dedicated=draw(st.integers(0, 9)) == 0, start=START + start, stop=START + stop,
    )  # fmt: skip


@st.composite
def priced(draw: st.DrawFn) -> list[Priced]:
    edges = sorted({START - timedelta(hours=1), *(START + draw(seconds) for _ in range(draw(st.integers(0, 3))))})
    rates = st.one_of(st.integers(0, 10**13), st.sampled_from([1_200_000_000, 1, 0, 333_333_333]))
    return [
        Priced(KIND, draw(rates), begins, ends)
        for begins, ends in zip(edges, [*edges[1:], ALWAYS], strict=True)
    ]  # fmt: skip


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Priced], list[Held], timedelta]:
    return draw(priced()), [draw(held(number)) for number in range(draw(st.integers(0, 8)))], draw(seconds)


def us(moment: datetime) -> int:
    return FOREVER if moment == ALWAYS else (moment - EPOCH) // MICROSECOND


def facts_of(prices: list[Priced], usage: list[Held], owned_from: timedelta, reported_at: int = FOREVER) -> NodeUsage:
    return NodeUsage(
        owned=[OwnedGpus(7, 2, *KIND, 16.0, us(START + owned_from))],
        rates={KIND: [GpuRate(one.nano_per_hour, us(one.start), us(one.stop)) for one in prices]},
        usage=[
            Usage(one.id, one.id, one.gpu, one.tenant, one.service, "", "", one.sm_percent, one.memory_gib,
                  one.dedicated, us(one.start), us(one.stop))
            for one in usage
        ],
        reported_at=reported_at,
    )  # fmt: skip


def allocated(facts: NodeUsage, start: datetime = START, stop: datetime = START + SPAN) -> Lines:
    return allocate(facts, us(start), us(stop))


@pytest.mark.slow
@settings(max_examples=scaled(10_000, 150))
@given(histories(), st.sampled_from(["gpu", "node"]))
@example(([Priced(KIND, 1, START)], [], timedelta()), "node")
def test_every_part_is_what_the_judge_says(history: tuple[list[Priced], list[Held], timedelta], pricing: str) -> None:
    prices, usage, owned_from = history
    lines = allocated(replace(facts_of(prices, usage, owned_from), pricing=pricing))
    paid = [Paid("node-1", gpu, KIND, 16.0, START + owned_from) for gpu in range(2)]
    verdict = judged(paid, prices, usage, START, START + SPAN, pricing)
    parts: dict[tuple[datetime, str, int, str, str], int] = defaultdict(int)
    times: dict[tuple[datetime, int], int] = defaultdict(int)
    for line, amount in lines.items():
        tenant = line.tenant if line.kind == "used" else f"__{line.kind}__"
        at = EPOCH + line.slice * MICROSECOND
        parts[at, "node-1", line.gpu, tenant, line.service] += amount.nano
        times[at, line.gpu] += amount.gpu_microseconds
        assert amount.nano >= 0 and amount.gpu_microseconds >= 0
    assert {key: part for key, part in parts.items() if part} == {
        key: part for key, part in verdict.parts.items() if part
    }
    for (at, gpu), time in times.items():
        begins = max(at, START + owned_from)
        assert time == (at + timedelta(minutes=15) - begins) // MICROSECOND, (at, gpu)


@pytest.mark.slow
@given(histories())
def test_a_hour_of_a_gpu_costs_its_price_whatever_happened_in_it(
    history: tuple[list[Priced], list[Held], timedelta],
) -> None:
    _, usage, _ = history
    price = [Priced(KIND, 1_234_567_891, START - timedelta(days=1))]
    lines = allocated(facts_of(price, usage, timedelta()))
    by_hour: dict[tuple[int, int], int] = defaultdict(int)
    for line, amount in lines.items():
        by_hour[line.slice // HOUR, line.gpu] += amount.nano
    assert set(by_hour.values()) == {1_234_567_891}
    assert len(by_hour) == 6


@given(histories(), st.integers(1, 11))
def test_slices_allocated_apart_are_those_allocated_together(
    history: tuple[list[Priced], list[Held], timedelta], cut: int
) -> None:
    facts = facts_of(*history)
    middle = START + cut * timedelta(minutes=15)
    assert allocated(facts, stop=middle) | allocated(facts, start=middle) == allocated(facts)


@pytest.mark.slow
@given(histories(), histories())
def test_what_stands_and_its_counter_entries_say_what_is_wanted(
    before: tuple[list[Priced], list[Held], timedelta], after: tuple[list[Priced], list[Held], timedelta]
) -> None:
    standing, wanted = allocated(facts_of(*before)), allocated(facts_of(*after))
    summed = {line: AllocatedAmount(one.gpu_microseconds, one.nano) for line, one in standing.items()}
    for line, one in differences(wanted, standing).items():
        summed.setdefault(line, AllocatedAmount()).add(one.gpu_microseconds, one.nano)
    assert {line: one for line, one in summed.items() if one != AllocatedAmount()} == {
        line: one for line, one in wanted.items() if one != AllocatedAmount()
    }
    assert differences(wanted, wanted) == {}


def test_time_after_the_last_report_is_nobodys_and_marked() -> None:
    usage = [held_from_start(stop=START + timedelta(minutes=20))]
    facts = facts_of([Priced(KIND, 4_000_000_000, START)], usage, timedelta(), us(START + timedelta(minutes=20)))
    found = {
        (line.slice // QUARTER - us(START) // QUARTER, line.kind, line.evidence): amount.nano
        for line, amount in allocated(facts, stop=START + timedelta(minutes=30)).items()
        if line.gpu == 0
    }
    assert found == {
        (0, "used", "measured"): 500_000_000,
        (0, "idle", "measured"): 500_000_000,
        (1, "used", "measured"): 166_666_667,
        (1, "idle", "measured"): 166_666_666,
        (1, "unallocated", "gap"): 666_666_667,
    }


def test_energy_is_divided_as_the_time_is() -> None:
    facts = facts_of([Priced(KIND, 4_000_000_000, START)], [held_from_start()], timedelta())
    with_energy = NodeUsage(facts.owned, facts.rates, facts.usage, energy_mj={(us(START), 0): 1001})
    lines = allocate(with_energy, us(START), us(START) + QUARTER)
    assert {(line.gpu, line.kind): amount.energy_mj for line, amount in lines.items()} == {
        (0, "idle"): 501, (0, "used"): 500, (1, "unallocated"): None,
    }  # fmt: skip


@given(st.integers(0, 10**15), st.lists(st.integers(0, 10**9), min_size=1, max_size=9).filter(any))
def test_parts_add_up_and_none_is_off_by_a_whole_one(amount: int, parts: list[int]) -> None:
    found = divide(amount, Shares(tuple(parts), sum(parts)))
    assert sum(found) == amount
    assert all(abs(one * sum(parts) - amount * part) < sum(parts) for one, part in zip(found, parts, strict=True))


@given(st.integers(0, 10**14), st.lists(st.integers(0, 10**16), min_size=3, max_size=3))
def test_a_stretch_costs_the_same_however_it_is_cut(rate: int, moments: list[int]) -> None:
    start, middle, stop = sorted(moments)
    assert cost(rate, start, middle) + cost(rate, middle, stop) == cost(rate, start, stop)
    assert cost(rate, 5 * HOUR, 6 * HOUR) == rate


def held_from_start(stop: datetime = ALWAYS) -> Held:
    return Held("copy-1", "node-1", 0, "shop", "search", 50.0, 1.0, False, START, stop)
