"""What a scaler takes for now: clocks that agree, samples that are new, and a look of minutes ago at most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from cli.scaler.drafting import MOST_AGE_SECONDS
from cli.scaler.loads import HISTORY_SECONDS, Percentiles
from cli.scaler.looking import ClusterWatch
from cli.scaler.reaching import LookFailed
from clusters.estate import Estate, WorkloadName
from clusters.measured import MeasuredLoads, WorkloadSeries
from clusters.objects import ClusterObjects, objects_of
from tests.clusters.made_up import Item, deployment, node, pod_spec, scaled_object

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
RANKER = WorkloadName("shop", "Deployment", "ranker")


def watch(ahead_seconds: float, is_current: bool, *more: Item) -> ClusterWatch:
    """One whose metrics are a steady load, at a clock that is ahead of the API server's."""

    def items() -> Iterator[Item]:
        yield from more
        yield node("n1", 4, "NVIDIA-L40S", "g6e.12xlarge")
        for item in deployment("shop", "ranker", pod_spec("triton:1", 1), ["n1", "n1"]):
            if item["kind"] == "Deployment":
                item["metadata"]["annotations"] = {"gpuwright.io/service": "ranker"}
            yield item

    def read_objects() -> ClusterObjects:
        return replace(objects_of(items()), server_time=NOW)

    def measure(estate: Estate, seconds: float, percentiles: Percentiles) -> MeasuredLoads:
        steps = int(seconds // 900)
        start = (NOW + timedelta(seconds=ahead_seconds)).timestamp() - steps * 900
        load = WorkloadSeries((10.0,) * steps, (2.0,) * steps, latency_ms=(20.0,) * steps)
        current = frozenset({RANKER}) if is_current else frozenset()
        return MeasuredLoads(start, 900, steps, "Prometheus", {RANKER: load}, current=current)

    return ClusterWatch(read_objects, measure, lambda: 50.0, 2.0)


@pytest.mark.parametrize(("ahead", "said"), [(90.0, "90 seconds ahead of"), (-720.0, "720 seconds behind")])
def test_a_prometheus_at_another_time_than_the_api_server_decides_nothing(ahead: float, said: str) -> None:
    with pytest.raises(LookFailed, match=f"its clock is {said} the API server's"):
        watch(ahead, is_current=True).look()


def test_a_load_without_a_new_sample_is_not_known() -> None:
    (draft,) = watch(5.0, is_current=False).look().drafts
    assert "its counters have no sample of the last 3 minutes" in draft.why
    (draft,) = watch(5.0, is_current=True).look().drafts
    assert "sample" not in draft.why


def test_a_look_is_too_old_to_write_by_counted_from_its_begin() -> None:
    look = watch(0.0, is_current=True).look()
    assert look.is_recent(50.0 + MOST_AGE_SECONDS - 1)
    assert not look.is_recent(50.0 + MOST_AGE_SECONDS)


@pytest.mark.parametrize("paused", ["paused", "paused-replicas"])
def test_a_paused_scaled_object_bounds_nothing_and_the_load_decides(paused: str) -> None:
    [scaled, _] = scaled_object("shop", "ranker", 1, 9)
    scaled["metadata"]["annotations"] = {f"autoscaling.keda.sh/{paused}": "true"}
    (draft,) = watch(5.0, True, scaled).look().drafts
    assert draft.wanted is not None, draft.why


@dataclass
class MadeUpShop:
    """Workloads of a namespace with a steady load each, and what was asked of their metrics."""

    names: list[str]
    unread: dict[str, str] = field(default_factory=dict)
    past: list[set[str]] = field(default_factory=list)  # whose days were read, each time
    now: float = 50.0

    def watch(self) -> ClusterWatch:
        return ClusterWatch(self._read_objects, self._measure, lambda: self.now, 2.0)

    def _read_objects(self) -> ClusterObjects:
        return replace(objects_of(self._items()), server_time=NOW)

    def _items(self) -> Iterator[Item]:
        yield node("n1", 8, "NVIDIA-L40S", "g6e.12xlarge")
        for name in self.names:
            for item in deployment("shop", name, pod_spec("triton:1", 1), ["n1", "n1"]):
                if item["kind"] == "Deployment":
                    item["metadata"]["annotations"] = {"gpuwright.io/service": name}
                yield item

    def _measure(self, estate: Estate, seconds: float, percentiles: Percentiles) -> MeasuredLoads:
        names = {each.name for each in estate.workloads}
        if seconds > 86_400:
            self.past.append({name.name for name in names})
        steps = int(seconds // 900)
        load = WorkloadSeries((10.0,) * steps, (2.0,) * steps, latency_ms=(20.0,) * steps)
        unread = {name: self.unread[name.name] for name in names if name.name in self.unread}
        known = names - unread.keys()
        start = NOW.timestamp() - steps * 900
        return MeasuredLoads(
            start, 900, steps, "Prometheus", dict.fromkeys(known, load), current=frozenset(known), unread=unread
        )


def test_only_the_days_of_a_newcomer_are_read_until_those_of_all_are_old() -> None:
    shop = MadeUpShop(["ranker", "search"])
    watch = shop.watch()
    watch.look()
    shop.names.append("newcomer")
    for _ in range(2):
        shop.now += 30
        drafts = watch.look().drafts
    assert shop.past == [{"ranker", "search"}, {"newcomer"}]
    assert all(draft.wanted is not None for draft in drafts)
    shop.now += HISTORY_SECONDS - 45
    watch.look()
    assert shop.past[2:] == [{"ranker", "search"}]


def test_a_load_that_cannot_be_read_holds_its_workload_alone_and_is_read_at_the_next_look() -> None:
    shop = MadeUpShop(["ranker", "search"], {"search": "it answered 503 busy"})
    watch = shop.watch()
    ranker, search = watch.look().drafts
    assert (ranker.is_blind, ranker.wanted is None) == (False, False)
    assert (search.is_blind, search.wanted) == (True, None)
    assert "its load could not be read: it answered 503 busy, so 2 stay" in search.why
    shop.unread.clear()
    _, search = watch.look().drafts
    assert (search.is_blind, search.wanted is None) == (False, False)
    assert shop.past == [{"ranker", "search"}, {"search"}]
