"""`gpuwright evaluate`: a paper's own experiments here, its planner and its baselines beside the joint planner."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cli import exits
from cli.arguments import completes, whole
from cli.exits import Failed
from cli.output import OutputTable, number, say
from cli.quiet import end_by_signals, quiet_log, quiet_stdout
from lab.evaluate.evaluations import MEASURES, SystemEvaluation

ALL = "all"
SEEDS = 3
COLUMNS = (
    "ID", "METRIC", "PAPER", "ITS PLANNER", "OURS", "BEST", "ITS BASELINE", "BEST BASELINE", "REPRODUCED", "OURS HERE",
    "RATIO",
)  # fmt: skip
EPILOG = """\
Runs the paper's testbed (lab/testbeds/) under the paper's loads, with each planner by its name. A run of a fleet is the
real control plane over a simulated fleet in virtual time, on a Postgres of its own. A run of morak executes each
planner's plan on simulated GPUs that always have work, with the paper's baselines as laws on the node. Claims and their
rules are in lab/evaluate/claims.yaml. Each has three verdicts: does the paper's planner reach the paper's figure here;
does the joint planner; is the joint planner better than the paper's planner and every baseline at no higher price and
no lower attainment, by the 95 % interval of their ratio over the seeds. docs/evaluate.md explains the experiments and
shows the figures. With "all", --out gets a folder for each system.

The same seeds give the same JSON on any machine, except for the milliseconds of M5.

Examples:
  gpuwright evaluate hetsev
  gpuwright evaluate inss --json --out evaluated/
  gpuwright evaluate morak
  gpuwright evaluate oltunes --seeds 1
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("system", choices=(*MEASURES, ALL), help="the system whose paper is evaluated")
    parser.add_argument(
        "--seeds", metavar="N", type=whole(1), default=SEEDS, help=f"seeds of each run; default {SEEDS}"
    )
    cores = len(os.sched_getaffinity(0))
    parser.add_argument(
        "--processes",
        metavar="N",
        type=whole(1),
        default=min(2, cores),
        help="runs at once; default 2, or 1 on one core",
    )
    parser.add_argument("--json", action="store_true", help="claims and runs as one JSON object on stdout")
    out = "folder for the JSON, the drawings (SVG and PNG) and index.html"
    completes(parser.add_argument("--out", metavar="DIR", help=out), "files")


def run(args: argparse.Namespace) -> int:
    folder = _folder(args.out) if args.out else None
    from app.postgres.faults import PostgresError
    from lab.evaluate.verdicts import count_verdicts
    from solvers.compiled import call_before_compiling

    call_before_compiling(lambda: say("compiling the planner's loops, this once: about a minute"))
    systems = tuple(MEASURES) if args.system == ALL else (args.system,)
    figures: dict[str, list[Any]] = {"claims": [], "runs": []}
    for system in systems:
        try:
            with quiet_log(), quiet_stdout(), end_by_signals():
                found = MEASURES[system](range(args.seeds), args.processes)
        except (PostgresError, OSError, RuntimeError) as error:
            raise Failed(str(error), exits.INTERNAL) from error
        own = found.figures()
        figures = {name: values + own[name] for name, values in figures.items()}
        if folder:
            _write(folder / system if args.system == ALL else folder, system, found)
    counts = count_verdicts(figures["claims"])
    if args.json:
        print(json.dumps({"claims": figures["claims"], "counts": counts, "runs": figures["runs"]}))
    else:
        _show(figures["claims"], counts)
    return exits.OK


def _write(folder: Path, system: str, found: SystemEvaluation) -> None:
    """Writes the figures, their drawings and the page of a system."""
    from lab.evaluate.page import evaluation_page

    figures = found.figures()
    try:
        folder.mkdir(exist_ok=True)
        drawings = found.draw(folder)
        (folder / "index.html").write_text(evaluation_page(system, figures, drawings))
        (folder / "evaluation.json").write_text(json.dumps(figures, indent=2) + "\n")
    except OSError as error:
        raise Failed(f"cannot write to {folder}: {error}", exits.INTERNAL) from None
    say(f"written to {folder}: evaluation.json, index.html and {len(drawings)} drawings")


def _folder(name: str) -> Path:
    """Makes the folder now, so that nothing is measured in vain."""
    folder = Path(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failed(f"cannot make the folder {name}: {error}") from None
    return folder


def _show(claims: Sequence[Mapping[str, Any]], counts: Mapping[str, Mapping[str, int]]) -> None:
    """Prints the claims for people, and how many have each verdict; notes are in the JSON and on the page."""
    OutputTable(COLUMNS).rows(_row(claim) for claim in claims)
    for question, answers in counts.items():
        told = ", ".join(f"{count} {answer}" for answer, count in answers.items())
        print(f"{question.replace('_', ' ')}: {told} of {len(claims)}")


def _row(claim: Mapping[str, Any]) -> tuple[str, ...]:
    paper = f"({number(claim['printed'])})" if claim["paper"] is None else number(claim["paper"])
    baselines = " or ".join(number(value) for value in claim["paper_baseline"].values())
    values = (number(claim[name]) for name in ("best_baseline", "reproduced", "ours"))
    ratio = "-" if claim["ratio"] is None else f"{claim['ratio']:.3f}"
    return claim["id"], claim["metric"], paper, *claim["verdicts"].values(), baselines, *values, ratio
