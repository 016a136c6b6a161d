"""Times Mudi's decision M5: from new rates to the smallest SM% of a cluster's services."""

from __future__ import annotations

import argparse
from typing import Any

from cli.arguments import whole
from cli.bench.plan_arguments import Say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", metavar="N", type=whole(0), default=0, help="default 0")


def measure(args: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Returns times for 12 and for 1,000 GPUs."""
    from lab.published import mudi

    say("SM% of 12 and of 1,000 GPUs")
    return dict(mudi.run(args.seed))
