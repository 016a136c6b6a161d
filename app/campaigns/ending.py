"""Ends campaigns: when they are done, when a service suffers, and when their GPU does not become free."""

from __future__ import annotations

from sqlalchemy import Connection

from app.campaigns import guard
from app.control.domain.events import Reason, event_of
from app.manifests.model import Key, Kind
from app.store.database import clock
from app.store.fleet import campaigns
from app.store.fleet.campaigns import Campaign, CampaignState
from app.store.world import events, objects


def stop_harmful(connection: Connection) -> int:
    """Ends every live campaign that may not go on; returns how many."""
    found = [campaigns.get(connection, campaign.id, lock=True) for campaign in campaigns.live(connection)]
    return sum(end_if_harmful(connection, campaign) for campaign in found if campaign and campaign.is_live)


def end_if_harmful(connection: Connection, campaign: Campaign) -> bool:
    """Ends a campaign beside which a service suffers, or that has no GPU; returns whether it did."""
    if objects.get(connection, Key(Kind.NODE, "", campaign.node)) is None:
        return finish(connection, campaign, "failed", "node_gone", f"node {campaign.node} was deleted")
    if harm := guard.find_harm(connection, campaign):
        return finish(connection, campaign, "stopped", "slo_suffers", harm)
    if lateness := guard.find_lateness(campaign, clock.now(connection)):
        return finish(connection, campaign, "failed", "gpu_not_free", lateness)
    return False


def finish(
    connection: Connection, campaign: Campaign, state: CampaignState, reason: str = "", message: str = ""
) -> bool:  # fmt: skip
    """Ends a campaign, which frees its GPU, and records an event; returns whether it was live."""
    if not campaigns.end(connection, campaign.id, state, reason, message):
        return False
    word = Reason.CAMPAIGN_DONE if state == "done" else Reason.CAMPAIGN_ENDED
    subject = f"campaign {campaign.id}, {campaign.model}/{campaign.variant} on GPU {campaign.gpu}"
    sentences = (word.sentence, message) if state == "done" else (message or word.sentence,)
    text = f"{subject}: {' '.join(sentences)}".strip()
    events.record(connection, [event_of(word, text, kind="Node", name=campaign.node, about=campaign.id)])
    return True
