"""A client of MPS that neither drains nor hears SIGTERM, and stays when its client is terminated."""

from __future__ import annotations

import os
import signal
import time

from agents.devices.simulated.client import attach

signal.signal(signal.SIGTERM, signal.SIG_IGN)
client = attach(os.environ, 0.5, failed=lambda reason: None)
time.sleep(600)
