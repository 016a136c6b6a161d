"""The fixtures and the order of the product's tests serve those of the lab, too."""

from __future__ import annotations

from tests.conftest import *  # noqa: F403 (pytest takes fixtures and hooks by their names)
