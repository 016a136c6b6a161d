"""The rule that spreads requests over a service's copies: HAProxy sets it by backend, so it belongs to the slot."""

from __future__ import annotations

from enum import StrEnum

FIRST_SLOTS = 64
# Of every 64 slots those from 48 on go by tokens in flight, and from 56 on by prefix: for language models first.
BY_TOKENS_FROM, BY_PREFIX_FROM = 48, 56


class Balance(StrEnum):
    """The ways in which HAProxy spreads requests over copies, always by weight."""

    IN_TURN = "roundrobin"
    LEAST_TOKENS = "leastconn"  # where Lua does not choose by tokens in flight
    PREFIX = "hdr(x-gpuwright-prefix)"  # the same copy for the same beginning


def balance_of(slot: int) -> Balance:
    """Returns how the requests of a slot are spread over its copies."""
    place = (slot - 1) % FIRST_SLOTS
    if place < BY_TOKENS_FROM:
        return Balance.IN_TURN
    return Balance.LEAST_TOKENS if place < BY_PREFIX_FROM else Balance.PREFIX
