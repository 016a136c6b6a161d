"""Ray Serve as the engine of a scaler: its dashboard is read at each look and asked to scale."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from app.settings import Settings
from app.store.plans.scale_rows import ScaleDraft, ScaleTarget
from cli.scaler.drafting import (
    MOST_AGE_SECONDS,
    EngineLook,
    LoadReader,
    LookFailed,
    Percentiles,
    decide_draft,
    read_token,
)
from cli.scaler.scaler import OpenTarget
from clusters.deciding import StandingReplicas
from clusters.estate import Estate, WorkloadName
from clusters.measured import MeasuredLoads
from clusters.metrics.finding_servers import FindServers
from clusters.ray_serve.adopting import (
    GONE,
    RaySighting,
    adopt,
    draw_ray_bounds,
    find_ray_hold,
    make_estate,
    note_sightings,
)
from clusters.ray_serve.counters import find_ray
from clusters.ray_serve.dashboard import RayDashboard, RayFailed
from clusters.ray_serve.services import RayServices, ServicesRefused, read_services
from clusters.ray_serve.target import RayTarget
from clusters.scaling.outcomes import ReplicaEngine

MeasureWith = Callable[[Estate, float, Percentiles, FindServers], MeasuredLoads]


class RayWatch:
    """What a scaler remembers of Ray between two looks: who set which number, and the load of days."""

    def __init__(self, file: Path, measure: MeasureWith, clock: Callable[[], float], days: float) -> None:
        self._file, self._measure, self._clock = file, measure, clock
        self._loads = LoadReader(self._measure_ray, clock, days, "Ray's dashboard")
        self._services: RayServices | None = None
        self._seen: dict[WorkloadName, RaySighting] = {}
        self._looked_at = float("-inf")

    def look(self) -> EngineLook:
        """Decides by what Ray and its metrics say now; LookFailed where one of them does not answer."""
        began_at = self._clock()
        self._services, dashboard = services, _ = connect(self._file)
        try:
            reading = dashboard.read()
        except RayFailed as failed:
            raise LookFailed("ray", f"{services.dashboard}: {failed}") from None
        # Who has not looked for a while, as before it led, does not know who set a number meanwhile.
        seen = self._seen if began_at < self._looked_at + MOST_AGE_SECONDS else {}
        self._seen, self._looked_at = note_sightings(reading, seen, began_at), began_at
        adopted = {
            each.name: adopt(each, found, services.dashboard, find_ray_hold(found, self._seen[each.name], began_at))
            for each in services.adopted
            if (found := reading.deployments.get(each.name))
        }
        loads = self._loads.read(make_estate(services, reading), [*adopted.values()], reading.server_time, began_at)
        drafts = []
        for each in services.adopted:
            if each.name not in adopted:
                drafts.append(ScaleDraft(ScaleTarget(*each.name), each.service, each.mode, None, None, GONE, GONE))
                continue
            ready, sighting = reading.deployments[each.name].ready, self._seen[each.name]
            standing = StandingReplicas(adopted[each.name].replicas, ready, began_at - sighting.since)
            drafts.append(decide_draft(adopted[each.name], draw_ray_bounds(each), standing, loads))
            if (wanted := drafts[-1].wanted) is not None:
                self._seen[each.name] = replace(sighting, wanted=sighting.wanted | {wanted})
        return EngineLook(tuple(drafts), {ScaleTarget(*name): each for name, each in adopted.items()}, began_at)

    def _measure_ray(self, estate: Estate, seconds: float, percentiles: Percentiles) -> MeasuredLoads:
        assert self._services is not None
        return self._measure(estate, seconds, percentiles, partial(find_ray, self._services.job))


def make_ray(settings: Settings, file: Path, measure: MeasureWith) -> tuple[RayWatch, OpenTarget]:
    """Returns what reads the Ray cluster of the file, and what writes to it; the file may change at any time."""

    @contextmanager
    def open_target() -> Iterator[ReplicaEngine]:
        services, dashboard = connect(file)
        yield RayTarget(dashboard, services)

    return RayWatch(file, measure, time.monotonic, settings.scale_days), open_target


def connect(file: Path) -> tuple[RayServices, RayDashboard]:
    """Returns what the file says and the dashboard that it names; LookFailed with every fault."""
    try:
        services = read_services(file)
    except ServicesRefused as refused:
        raise LookFailed("ray", str(refused)) from None
    return services, RayDashboard(services.dashboard, read_token(services.token_file, "ray"))
