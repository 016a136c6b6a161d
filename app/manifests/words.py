"""What names and words are, and which modes there are: plain values, for readers without pydantic, too."""

from __future__ import annotations

from typing import Literal, TypeAlias

LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"  # a DNS label, RFC 1123
WORD = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
Mode: TypeAlias = Literal["advisory", "approve", "auto"]
