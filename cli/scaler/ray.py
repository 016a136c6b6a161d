"""Ray Serve as the engine of a scaler: its dashboard is read at each look and asked to scale."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from agents.host.plaintext import plaintext_refusal
from app.settings import Settings
from app.store.plans.scale_rows import ScaleDraft, ScaleTarget
from cli.scaler.drafting import MOST_AGE_SECONDS, EngineLook, decide_draft
from cli.scaler.loads import LoadReader, Percentiles
from cli.scaler.reaching import LookFailed, read_token
from cli.scaler.scaler import OpenEngine
from clusters.deciding import StandingReplicas
from clusters.estate import Estate, WorkloadName
from clusters.measured import MeasuredLoads
from clusters.metrics.finding_servers import FindServers
from clusters.ray_serve.adopting import (
    RaySighting,
    adopt,
    draw_ray_bounds,
    find_absence,
    find_refusal,
    make_estate,
    note_numbers,
)
from clusters.ray_serve.counters import find_counters
from clusters.ray_serve.dashboard import RayDashboard, RayFailed
from clusters.ray_serve.engine import RayEngine
from clusters.ray_serve.services import RayServices, ServicesRefused, read_services
from clusters.scaling.outcomes import ReplicaEngine

MeasureWith = Callable[[Estate, float, Percentiles, FindServers], MeasuredLoads]


class RayWatch:
    """What a scaler remembers of Ray between two looks: who set which number, and the load of days."""

    def __init__(self, file: Path, measure: MeasureWith, clock: Callable[[], float], days: float) -> None:
        self._file, self._measure, self._clock = file, measure, clock
        self._loads = LoadReader(self._measure_ray, clock, days, "Ray's dashboard")
        self._job = ""  # of Prometheus' scrapes of Ray
        self._seen: dict[WorkloadName, RaySighting] = {}
        self._looked_at = float("-inf")

    def look(self) -> EngineLook:
        """Decides by what Ray and its metrics say now; LookFailed where one of them does not answer."""
        began_at = self._clock()
        services, dashboard = open_dashboard(self._file)
        self._job = services.job
        try:
            reading = dashboard.read()
        except RayFailed as failed:
            raise LookFailed("ray", f"{services.dashboard}: {failed}") from None
        # Before it led it did not look, so it does not know who set a number meanwhile.
        seen = self._seen if began_at < self._looked_at + MOST_AGE_SECONDS else {}
        self._seen, self._looked_at = note_numbers(reading, seen, began_at), began_at
        present = {
            each.name: found
            for each in services.adopted
            if (found := reading.deployments.get(each.name)) and not find_absence(found)
        }
        adopted = {
            each.name: adopt(
                each, found, services.dashboard, find_refusal(found) or self._seen[each.name].find_hold(began_at)
            )
            for each in services.adopted
            if (found := present.get(each.name))
        }
        loads = self._loads.read(make_estate(present), [*adopted.values()], reading.server_time, began_at)
        drafts = []
        for each in services.adopted:
            if each.name not in adopted:
                why = find_absence(reading.deployments.get(each.name))
                drafts.append(ScaleDraft(ScaleTarget(*each.name), each.service, each.mode, None, None, why, why))
                continue
            sighting = self._seen[each.name]
            standing = StandingReplicas(sighting.target, present[each.name].ready, began_at - sighting.since)
            drafts.append(decide_draft(adopted[each.name], draw_ray_bounds(each), standing, loads))
            if (wanted := drafts[-1].wanted) is not None:
                self._seen[each.name] = replace(sighting, wanted=sighting.wanted | {wanted})
        return EngineLook(tuple(drafts), {ScaleTarget(*name): each for name, each in adopted.items()}, began_at)

    def _measure_ray(self, estate: Estate, seconds: float, percentiles: Percentiles) -> MeasuredLoads:
        return self._measure(estate, seconds, percentiles, partial(find_counters, self._job))


def make_ray(settings: Settings, file: Path, measure: MeasureWith) -> tuple[RayWatch, OpenEngine]:
    """Returns what reads the Ray cluster of the file, and what writes to it; the file may change at any time."""

    @contextmanager
    def open_engine() -> Iterator[ReplicaEngine]:
        services, dashboard = open_dashboard(file)
        yield RayEngine(dashboard, services)

    return RayWatch(file, measure, time.monotonic, settings.scale_days), open_engine


def open_dashboard(file: Path) -> tuple[RayServices, RayDashboard]:
    """Returns what the file says and the dashboard that it names; LookFailed with every fault."""
    try:
        services = read_services(file)
    except ServicesRefused as refused:
        raise LookFailed("ray", str(refused)) from None
    if services.token_file and (refusal := plaintext_refusal(services.dashboard)):
        raise LookFailed("ray", f"{file}: {refusal}")
    return services, RayDashboard(services.dashboard, read_token(services.token_file, "ray"))
