"""The messages by which a node is asked for what an instance has printed, and answers."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from agents.contract.fields import Identifier

MOST_LOG_BYTES = 64 << 10  # of one answer
LONGEST_LOG_WAIT_SECONDS = 30.0
# COPY@OFFSET: up to there it was read; empty: only the last lines are wanted.
LogPlace = Annotated[str, Meta(max_length=160, pattern=r"^[!-~]*$(?!\n)")]


class LogWanted(Struct, rename="camel", omit_defaults=True, gc=False, frozen=True):
    """A request for the output of an instance. With a place, it is answered once there is more, or time is up."""

    id: Identifier
    instance: Identifier
    begins: LogPlace = ""
    seconds: Annotated[float, Meta(ge=0, le=LONGEST_LOG_WAIT_SECONDS)] = 0.0


class LogText(Struct, rename="camel", omit_defaults=True, gc=False):
    """The output of an instance: whole lines, in order, of one process or of its last ones."""

    id: Identifier
    ends: LogPlace = ""
    text: Annotated[str, Meta(max_length=MOST_LOG_BYTES)] = ""
