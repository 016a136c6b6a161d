"""Measures predictions against public measurements."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from cli.bench.plan_arguments import Say
from cli.bench.solve import refuse_undrawable
from cli.exits import Failed

DRAWN = "latency"  # the topic of --plot
SHOWN = ("what", "n", "ours", "unit", "baselines", "note")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", metavar="DIR", required=True, help="folder that holds the published files")
    parser.add_argument("--llm", action="store_true", help="servers of language models instead")
    parser.add_argument("--topic", metavar="NAME", action="append", help="measure this topic only; may be repeated")
    parser.add_argument("--plot", metavar="FILE.png", help="draw latency's error against the number of measurements")


def measure(args: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Returns the rows of every topic, or of those asked for."""
    from lab.accuracy import LLM_TOPICS, TOPICS
    from lab.data.missing_data import DataMissing

    modules = {topic.removeprefix("llm."): topic for topic in (LLM_TOPICS if args.llm else TOPICS)}
    unknown = sorted(set(args.topic or ()) - set(modules))
    if unknown:
        raise Failed(f"--topic {unknown[0]} is not one of {', '.join(modules)}")
    topics = args.topic or list(modules)
    if args.plot:
        if DRAWN not in topics:
            raise Failed(f"--plot draws the topic {DRAWN}, which is not measured; measured are {', '.join(topics)}")
        refuse_undrawable(Path(args.plot))
    rows: list[dict[str, Any]] = []
    for topic in topics:
        say(f"measuring {topic}")
        try:
            rows += [asdict(row) for row in import_module(f"lab.accuracy.{modules[topic]}").rows(Path(args.data))]
        except DataMissing as missing:
            raise Failed(str(missing)) from None
    if args.plot:
        draw_latency(rows, args.plot, say)
    return {"rows": rows}


def draw_latency(rows: list[dict[str, Any]], file: str, say: Say) -> None:
    from lab.accuracy.latency import MOST
    from lab.bench.latency_plot import draw

    draw(rows, MOST, Path(file))
    say(f"drawn: {file}")
