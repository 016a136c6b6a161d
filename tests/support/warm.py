"""Imported by the fork server last: what is imported by then stays for good.

A collection of garbage in a forked process would write to every object, and so copy every page of them.
"""

from __future__ import annotations

import gc

gc.collect()
gc.freeze()
