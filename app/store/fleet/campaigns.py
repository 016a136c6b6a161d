"""Profiling campaigns and their measurements. A live campaign reserves its GPU: plans leave it empty."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

import msgspec
from sqlalchemy import Connection

from agents.contract.campaigns import CopySetting, MeasuredSetting
from agents.contract.runtimes import OwnProbe, OwnRuntime
from app.store.database.database import SqlRow, statement
from app.store.plans import plan_reads

CampaignState = Literal["waiting", "measuring", "done", "stopped", "failed"]
LIVE = ("waiting", "measuring")
MOST_MEASURED_TOGETHER = 1000  # that pressures and sensitivities are found from


class NeighbourModel(msgspec.Struct, rename="camel", omit_defaults=True):
    """A variant whose copies run beside the measured one."""

    model: str
    variant: str
    template: str
    args: dict[str, str | int | float | bool] = {}


class CampaignRequest(msgspec.Struct, rename="camel", omit_defaults=True):
    """The subject of a campaign, and its effort."""

    template: str
    args: dict[str, str | int | float | bool]
    settings: tuple[CopySetting, ...]  # among which it chooses
    accuracy: float
    most: int
    least_seconds: float
    watched: tuple[str, ...] = ()  # services that ran on the node when it was asked for
    unserved: tuple[str, ...] = ()  # services that were not fully served even then
    neighbours: tuple[NeighbourModel, ...] = ()  # beside which the model is measured; empty: alone
    runtime: OwnRuntime | None = None  # in place of the template
    example: OwnProbe | None = None  # a request that such a server can answer


class CampaignDraft(NamedTuple):
    """A campaign about to be stored."""

    id: str
    node: str
    gpu: int
    model: str
    variant: str
    gpu_type: str
    request: CampaignRequest


class SettingFailure(msgspec.Struct, rename="camel", omit_defaults=True):
    """A setting that could not be measured."""

    setting: CopySetting
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Campaign:
    """A campaign as the database stores it."""

    id: str
    node: str
    gpu: int
    model: str
    variant: str
    gpu_type: str
    request: CampaignRequest
    state: CampaignState
    reason: str
    message: str
    asked_by: str
    asked_at: datetime
    began_at: datetime | None  # when its GPU was free
    ended_at: datetime | None
    pending: CopySetting | None  # given to the node, not measured yet
    failures: tuple[SettingFailure, ...]
    measured: int  # settings so far

    @property
    def names(self) -> list[str]:
        """The measured variant and its neighbours."""
        return [
            f"{self.model}/{self.variant}",
            *(f"{neighbour.model}/{neighbour.variant}" for neighbour in self.request.neighbours),
        ]

    @property
    def is_live(self) -> bool:
        return self.state in LIVE


_COLUMNS = (
    "id, node, gpu, model, variant, gpu_type, request, state, reason, message, asked_by, asked_at, began_at, ended_at, "
    "pending, failures, (SELECT count(*) FROM campaign_measurement WHERE campaign = campaign.id) AS measured"
)
INSERT = statement(
    "insert_campaign",
    f"""
    INSERT INTO campaign (id, node, gpu, model, variant, gpu_type, request, state, asked_by, asked_at)
    VALUES (:id, :node, :gpu, :model, :variant, :gpu_type, CAST(:request AS jsonb), 'waiting', :asked_by, moment())
    ON CONFLICT DO NOTHING RETURNING {_COLUMNS}
    """,
)
GET = statement("get_campaign", f"SELECT {_COLUMNS} FROM campaign WHERE id = :id")
LOCK = statement("lock_campaign", f"SELECT {_COLUMNS} FROM campaign WHERE id = :id FOR UPDATE")
LIVE_OF_NODE = statement(
    "live_campaign_of_node",
    f"SELECT {_COLUMNS} FROM campaign WHERE node = :node AND state IN ('waiting', 'measuring') FOR UPDATE",
)
LIVE_NODES = statement(
    "nodes_of_live_campaigns", "SELECT node, id FROM campaign WHERE state IN ('waiting', 'measuring')"
)
LIVE_ONES = statement(
    "live_campaigns", f"SELECT {_COLUMNS} FROM campaign WHERE state IN ('waiting', 'measuring') ORDER BY node"
)
PAGE = statement("recent_campaigns", f"SELECT {_COLUMNS} FROM campaign ORDER BY asked_at DESC, id LIMIT :limit")
ISSUE = statement(
    "issue_setting",
    """
    UPDATE campaign SET state = 'measuring', message = '', pending = CAST(:pending AS jsonb),
        began_at = coalesce(began_at, moment())
    WHERE id = :id
    """,
)
WAIT = statement(
    "campaign_waits", "UPDATE campaign SET state = 'waiting', message = :message, pending = NULL WHERE id = :id"
)
FAIL_SETTING = statement(
    "fail_setting",
    "UPDATE campaign SET pending = NULL, failures = failures || CAST(:failure AS jsonb) WHERE id = :id",
)
END = statement(
    "end_campaign",
    """
    UPDATE campaign SET state = :state, reason = :reason, message = :message, pending = NULL, ended_at = moment()
    WHERE id = :id AND state IN ('waiting', 'measuring') RETURNING id
    """,
)
ADD = statement(
    "add_measurement",
    """
    INSERT INTO campaign_measurement (campaign, sequence, measured, received_at)
    VALUES (:campaign, :sequence, CAST(:measured AS jsonb), moment()) ON CONFLICT DO NOTHING RETURNING sequence
    """,
)
CLEAR = statement("clear_pending", "UPDATE campaign SET pending = NULL WHERE id = :id")
MEASURED = statement(
    "measurements_of_campaign",
    "SELECT measured FROM campaign_measurement WHERE campaign = :campaign ORDER BY sequence",
)
MEASURED_TOGETHER = statement(
    "measured_together_on_gpu_type",
    """
    SELECT measured FROM campaign_measurement JOIN campaign ON campaign.id = campaign_measurement.campaign
    WHERE campaign.gpu_type = :gpu_type AND campaign.asked_at <= :asked_at AND measured -> 'copies' IS NOT NULL
    ORDER BY campaign.asked_at DESC, campaign.id, sequence LIMIT :limit
    """,
)
FORGET = statement("forget_campaigns", "DELETE FROM campaign WHERE ended_at < moment() - CAST(:after AS interval)")


def insert(connection: Connection, draft: CampaignDraft, asked_by: str) -> Campaign | None:
    """Stores a new campaign and wakes the leader; None if the node has a live one already."""
    request = msgspec.json.encode(draft.request).decode()
    made = connection.execute(INSERT, {**draft._asdict(), "request": request, "asked_by": asked_by}).one_or_none()
    if made is None:
        return None
    plan_reads.wake(connection)
    return _campaign(made)


def get(connection: Connection, campaign_id: str, *, lock: bool = False) -> Campaign | None:
    row = connection.execute(LOCK if lock else GET, {"id": campaign_id}).one_or_none()
    return _campaign(row) if row else None


def live_of_node(connection: Connection, node: str) -> Campaign | None:
    """Returns the campaign that a node measures for, locked until the transaction ends."""
    row = connection.execute(LIVE_OF_NODE, {"node": node}).one_or_none()
    return _campaign(row) if row else None


def live(connection: Connection) -> list[Campaign]:
    return [_campaign(row) for row in connection.execute(LIVE_ONES)]


def live_by_node(connection: Connection) -> dict[str, str]:
    """Returns the live campaign of each node that has one."""
    return {row.node: row.id for row in connection.execute(LIVE_NODES)}


def recent(connection: Connection, limit: int) -> list[Campaign]:
    """Returns the newest campaigns first."""
    return [_campaign(row) for row in connection.execute(PAGE, {"limit": limit})]


def issue(connection: Connection, campaign_id: str, setting: CopySetting) -> None:
    """Notes the setting that the node is to measure now."""
    connection.execute(ISSUE, {"id": campaign_id, "pending": msgspec.json.encode(setting).decode()})


def wait(connection: Connection, campaign_id: str, message: str) -> None:
    """Notes what still runs on the GPU."""
    connection.execute(WAIT, {"id": campaign_id, "message": message})


def fail_setting(connection: Connection, campaign_id: str, failure: SettingFailure) -> None:
    connection.execute(FAIL_SETTING, {"id": campaign_id, "failure": msgspec.json.encode([failure]).decode()})


def end(connection: Connection, campaign_id: str, state: CampaignState, reason: str = "", message: str = "") -> bool:
    """Ends a live campaign, which frees its GPU, and wakes the leader; returns whether it was live."""
    values = {"id": campaign_id, "state": state, "reason": reason, "message": message}
    was_live = connection.execute(END, values).scalar() is not None
    if was_live:
        plan_reads.wake(connection)
    return was_live


def add(connection: Connection, campaign_id: str, measured: MeasuredSetting) -> bool:
    """Stores a measurement once, however often it is sent; returns whether it is new."""
    values = {
        "campaign": campaign_id,
        "sequence": measured.sequence,
        "measured": msgspec.json.encode(measured).decode(),
    }
    is_new = connection.execute(ADD, values).scalar() is not None
    if is_new:
        connection.execute(CLEAR, {"id": campaign_id})
    return is_new


def measurements(connection: Connection, campaign_id: str) -> list[MeasuredSetting]:
    """Returns the measurements in the order in which they were taken."""
    rows = connection.execute(MEASURED, {"campaign": campaign_id})
    return [msgspec.convert(row.measured, MeasuredSetting) for row in rows]


def read_measured_together(connection: Connection, gpu_type: str, asked_at: datetime) -> list[MeasuredSetting]:
    """Returns the newest measurements beside neighbours on a GPU type, of campaigns asked for until then."""
    values = {"gpu_type": gpu_type, "asked_at": asked_at, "limit": MOST_MEASURED_TOGETHER}
    return [msgspec.convert(row.measured, MeasuredSetting) for row in connection.execute(MEASURED_TOGETHER, values)]


def forget(connection: Connection, after: timedelta) -> None:
    """Deletes campaigns that ended so long ago."""
    connection.execute(FORGET, {"after": after})


def _campaign(row: SqlRow) -> Campaign:
    found = list(row)
    found[6] = msgspec.convert(found[6], CampaignRequest)
    found[14] = msgspec.convert(found[14], CopySetting) if found[14] else None
    found[15] = tuple(msgspec.convert(found[15], list[SettingFailure]))
    return Campaign(*found)
