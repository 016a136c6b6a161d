"""What an announcement follows from and compares itself with, in one statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
from sqlalchemy import Connection

from app.manifests.model import Fields, Free
from app.store.database.database import T, statement
from app.store.fleet import cordons, endpoints, observed
from app.store.fleet.cordons import Cordon
from app.store.fleet.endpoints import GatewayLimit
from app.store.fleet.observed import HeldGpu
from app.store.plans import job_states, outlook
from app.store.plans.job_states import JobRow

READ = statement(
    "announced_before",
    f"""
    SELECT
        (SELECT CAST(json_object_agg(gateway, CAST(extract(epoch FROM moment() - received_at) AS float8)) AS text)
         FROM gateway_state) AS silence,
        (SELECT CAST(json_agg(listed) AS text) FROM ({observed.HELD_GPUS}) AS listed) AS held,
        (SELECT CAST(json_agg(listed) AS text) FROM ({cordons.LISTED}) AS listed) AS cordons,
        (SELECT CAST(json_agg(listed) AS text) FROM ({job_states.LISTED}) AS listed) AS jobs,
        (SELECT CAST(json_agg(listed) AS text) FROM ({endpoints.LISTED_LIMITS}) AS listed) AS limits,
        (SELECT CAST(json_object_agg(node, CAST(extract(epoch FROM moment() - since) AS float8)) AS text)
         FROM idle_node) AS idle,
        (SELECT CAST(body AS text) FROM outlook WHERE name = '{outlook.MONEY}') AS money,
        (SELECT state FROM plan WHERE generation = :generation) AS state
    """,
)


class _Limit(msgspec.Struct):
    service: str
    queue_limit: int
    shed_share: float
    retry_after_seconds: int
    in_time: dict[str, int]


@dataclass(frozen=True, slots=True)
class Announced:
    """The fleet before an announcement, and what the last one has written."""

    silence: Mapping[str, float]  # by gateway: seconds since it last sent counts
    held: Sequence[HeldGpu]
    cordons: Sequence[Cordon]
    jobs: Sequence[JobRow]
    limits: Mapping[str, GatewayLimit]  # by service
    idle: Mapping[str, float]  # by node that was found empty: for how many seconds
    money: Fields  # the advice about what to give back and to rent
    plan_state: str | None  # None: the plan is not stored


def read(connection: Connection, generation: int) -> Announced:
    """Returns all of it, with the state of a plan."""
    row = connection.execute(READ, {"node": "", "generation": generation}).one()
    return Announced(
        silence=_decode(row.silence, dict[str, float], {}),
        held=_decode(row.held, list[HeldGpu], []),
        cordons=_decode(row.cordons, list[Cordon], []),
        jobs=_decode(row.jobs, list[JobRow], []),
        limits={
            limit.service: GatewayLimit(limit.queue_limit, limit.shed_share, limit.retry_after_seconds, limit.in_time)
            for limit in _decode(row.limits, list[_Limit], [])
        },
        idle=_decode(row.idle, dict[str, float], {}),
        money=_decode(row.money, Free, {}),
        plan_state=row.state,
    )


def _decode(found: str | None, kind: type[T], nothing: T) -> T:
    return nothing if found is None else msgspec.json.decode(found, type=kind)
