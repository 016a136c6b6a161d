"""Decides which paths callers may use: first whether a path has one meaning only."""

from __future__ import annotations

LONGEST_PATH = 4000
# An escape is of UTF-8, and neither of `/`, `\\`, `%` nor of a control character.
_ESCAPE = (
    "%(?:2[0-46-9A-Ea-e]|[346][0-9A-Fa-f]|5[0-9ABD-Fabd-f]|7[0-9A-Ea-e]"
    "|[89ABDEabde][0-9A-Fa-f]|[Cc][2-9A-Fa-f]|[Ff][0-4])"
)
# The path as it came: segments of RFC 3986 without `;`, none of them empty, `.` or `..`. Servers disagree on what any
# other path means. \x27 is an apostrophe, which would end HAProxy's quotes.
PATH = rf"^(?:/(?!(?:[.]|%2[Ee]){{1,2}}(?:/|$))(?:[-A-Za-z0-9._~!$&\x27()*+,=:@]|{_ESCAPE})+)+/?$"
