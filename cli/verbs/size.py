"""`gpuwright size`: what to rent for a load, by plans of its highest moments, confirmed by simulation."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli import declared, exits
from cli.arguments import add_file_arguments, completes, positive, whole
from cli.currency import head_amounts, name_currency
from cli.exits import Failed
from cli.load_file import RATES_COLUMNS, read_curves, read_simulated_rates
from cli.output import OutputTable, format_yaml, number, plain, say
from cli.pools import spell_pools, spell_servers
from cli.quiet import end_by_signals, quiet_log, quiet_stdout
from cli.talk.contexts import reason
from simulation.limits import MOST_HOURS, SIMULATIONS, WORK

if TYPE_CHECKING:
    from app.manifests.model import Manifest
    from app.manifests.offline import DeclaredFiles
    from simulation.sizing.run import SizingOrder, SizingReport

EPILOG = """\
Rented are GPUs of the types that say how many there are (spec.rentable of a GpuType), at their price an hour, in
addition to the declared Nodes, which cost nothing more. Jobs are left out: they take what services leave.

Plans find the cheapest rental that carries every minute of the load. Then the real planner runs the fleet with it under
the whole load, in virtual time: every service must keep its SLO at its percentile, and nothing may be turned away. A
rental that fails gets more GPUs; of one that holds, each type is tried with one GPU less. More in docs/simulate.md.

A service that promises times of tokens gets servers of its own for its highest rate, simulated request by request.
Beside them stand two pools, one for prompts and one for answers, and what they save.

Exit code 0 when a simulation confirmed the rental, 1 when none did, 3 when all GPUs to rent do not carry the load, 2
for bad input. The same input, seed, work and simulations give the same JSON on any machine, but for `seconds`.

Examples:
  gpuwright size -f fleet.yaml --rates yesterday.csv
  gpuwright size -f fleet.yaml --rates yesterday.csv --json
  gpuwright size -f fleet.yaml --rates yesterday.csv --simulations 5 -o rented.yaml
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_file_arguments(parser)
    rates = parser.add_argument(
        "--rates", metavar="FILE.csv", required=True, help=f"the load as CSV with {RATES_COLUMNS}"
    )
    completes(rates, "files")
    simulations = f"to run at most; default {SIMULATIONS}"
    parser.add_argument("--simulations", metavar="N", type=whole(1, 1000), default=SIMULATIONS, help=simulations)
    parser.add_argument("--seed", metavar="N", type=whole(0), default=0, help="of load and searches; default 0")
    work = (
        f"of each search of a simulated cycle; default {WORK}. A search for what to rent takes up to ten times as much"
    )
    parser.add_argument("--work", metavar="N", type=whole(1), default=WORK, help=work)
    link = (
        "of each GPU's network link, by which prefill servers send keys and values to decode servers, where its GpuType"
        " has no networkGbit; default 200"
    )
    parser.add_argument("--link-gbit", metavar="N", type=positive, default=200.0, help=link)
    parser.add_argument("--json", action="store_true", help="the answer as one JSON object on stdout")
    nodes = "also write what to rent to this file as Nodes: one for each GPU, or for each server of a language model"
    completes(parser.add_argument("-o", "--output", metavar="FILE", help=nodes), "files")


def run(args: argparse.Namespace) -> int:
    if args.output and not Path(args.output).parent.is_dir():
        raise Failed(f"cannot write {args.output}: there is no folder {Path(args.output).parent}")
    order = _order(args)
    found = _size(args, order)
    if args.json:
        print(json.dumps(found.figures), flush=True)
    else:
        _show(found.figures, order.declared.currency)
    if args.output:
        _write(args.output, found.nodes)
    models = found.figures.get("languageModels", ())
    if "unserved" in found.figures or any(model["together"] is None for model in models):
        return exits.UNSERVED
    return exits.OK if found.figures["confirmedBySimulation"] else exits.NO


def _order(args: argparse.Namespace) -> SizingOrder:
    world = declared.world(args)
    curves = read_curves(args.rates, read_simulated_rates(world))
    from simulation.sizing.moments import trace_seconds
    from simulation.sizing.run import SizingOrder

    if trace_seconds(curves) > MOST_HOURS * 3600:
        hours = trace_seconds(curves) / 3600
        raise Failed(f"{args.rates} ends after {hours:.6g} hours: at most {MOST_HOURS} are simulated")
    return SizingOrder(world, curves, args.seed, args.work, args.simulations)


def _size(args: argparse.Namespace, order: SizingOrder) -> SizingReport:
    from app.postgres.faults import PostgresError
    from simulation.sizing.language import add_language_models, leave_language_models_out, size_language_models
    from simulation.sizing.rental import RentalRefused
    from simulation.sizing.run import SizingReport
    from solvers.compiled import call_before_compiling

    call_before_compiling(lambda: say("compiling the planner's loops, this once: about a minute"))
    try:
        sized = size_language_models(order.declared, order.curves, args.link_gbit, say)
        rest = leave_language_models_out(order.declared, sized)
        found = _size_rest(order, rest) if rest else SizingReport({}, ())
        return add_language_models(found, order.declared, sized) if sized else found
    except RentalRefused as refused:
        raise Failed(str(refused)) from None
    except (PostgresError, OSError) as error:
        raise Failed(str(error), exits.INTERNAL) from error


def _size_rest(order: SizingOrder, declared: DeclaredFiles) -> SizingReport:
    """Sizes for all services but those on language models."""
    from app.control.formulate.problem import build_problem
    from simulation.own_databases import own_databases
    from simulation.sizing.rental import RentalMarket
    from simulation.sizing.run import size

    RentalMarket.of(declared)  # before a database is started for it
    curves = {name: order.curves[name] for name in build_problem(declared).services if name in order.curves}
    with quiet_log(), quiet_stdout(), end_by_signals(), own_databases("gpuwright-size-") as databases:
        return size(databases, replace(order, declared=declared, curves=curves), say)


def _write(file: str, nodes: Collection[Manifest]) -> None:
    from app.manifests.model import API_VERSION

    if not nodes:
        say(f"{file} is not written: nothing is rented")
        return
    documents = [
        {"apiVersion": API_VERSION, "kind": str(node.kind), "metadata": {"name": node.name}, "spec": dict(node.spec)}
        for node in nodes
    ]
    try:
        Path(file).write_text("\n---\n".join(map(format_yaml, documents)) + "\n")
    except OSError as error:
        raise Failed(f"cannot write {file}: {reason(error)}", exits.INTERNAL) from None


def _show(figures: Mapping[str, Any], currency: str) -> None:
    """Prints the answer for people: what to rent, how services fared with it, and what else was tried."""
    if models := figures.get("languageModels"):
        _show_models(models, figures["total"], currency)
    for entry in figures.get("unserved", ()):
        why = f": {entry['reason']}" if entry["reason"] else ""
        change = f"; least change: {entry['relaxation']}" if entry["relaxation"] else ""
        lacking = f"{entry['service']}: {number(entry['ratePerSecond'])} a second at second {entry['seconds']:g}"
        print(plain(f"unserved with all that may be rented: {lacking}{why}{change}"))
    if not figures.get("tried"):
        return
    OutputTable(("SERVICE", "WITHIN SLO", "WORST HOUR")).rows(
        (name, f"{100 * shares['share']:.2f} %", f"{100 * shares['worstHour']:.2f} %")
        for name, shares in sorted(figures["attainment"].items())
    )
    print()
    OutputTable(("TRIED", head_amounts("AN HOUR", currency), "TURNED AWAY", "KEPT", "WHY NOT")).rows(
        map(_write_trial, figures["tried"])
    )
    print()
    print(name_currency(_answer(figures), currency))


def _show_models(models: Sequence[Mapping[str, Any]], total: Mapping[str, Any], currency: str) -> None:
    cost, apart, saves = (head_amounts(heading, currency) for heading in ("COST", "COST APART", "SAVES"))
    columns = ("LANGUAGE MODEL", "A SECOND", "SERVERS", cost, "PREFILL APART", "DECODE APART", apart, saves)
    OutputTable(columns).rows(map(_write_model, models))
    print()

    def show(sentence: str) -> None:
        print(plain(name_currency(sentence, currency)))

    for model in models:
        if parts := model["parts"]:
            cheaper = f"{spell_servers(parts['servers'])} at {number(parts['costPerHour'])} an hour"
            show(f"{model['service']}: with tokensPerIteration {parts['tokens']}, {cheaper} do both")
        show(f"{model['service']}: {model['why']}")
        if model["cheapest"] == "apart":
            show(f"{model['service']}: {spell_pools(model['apart'])}")
    left_out = [model["service"] for model in models if model["together"] is None]
    without = f", without {' and '.join(left_out)}" if left_out else ""
    show(f"rent {_gpus(total['gpus'])} at {number(total['costPerHour'])} an hour in all{without}")
    print()


def _write_model(model: Mapping[str, Any]) -> tuple[str, ...]:
    together, apart = model["together"] or {}, model["apart"] or {}
    pools = (spell_servers(together.get("servers", ())), number(together.get("costPerHour")))
    two = (
        spell_servers(apart.get("prefill", ())),
        spell_servers(apart.get("decode", ())),
        number(apart.get("costPerHour")),
    )
    saving = number(model["savingPerHour"] or None)
    return model["service"], number(model["ratePerSecond"]), *pools, *two, saving


def _write_trial(trial: Mapping[str, Any]) -> tuple[str, ...]:
    turned_away = number(trial["shedRequests"]) if trial["simulated"] else ""
    kept = "yes" if trial["kept"] else "no"
    return _gpus(trial["gpus"]), number(trial["costPerHour"]), turned_away, kept, trial["why"]


def _answer(figures: Mapping[str, Any]) -> str:
    rental, cost = _gpus(figures["gpus"]), number(figures["costPerHour"])
    if not figures["confirmedBySimulation"]:
        more = "more simulations may find one (--simulations)" if figures["moreHelps"] else "more GPUs do not help"
        return f"no rental was confirmed; the nearest is {rental} at {cost} an hour; {more}"
    if not figures["gpus"]:
        return "rent nothing: the declared Nodes carry the load, confirmed by simulation"
    bound = f"no plan of its largest moment costs less than {number(figures['boundPerHour'])}"
    less = "one GPU less of any type fails" if figures["oneLessFails"] else "not every GPU less was tried"
    shed = figures["shedAnyway"]
    anyway = f"; up to {number(shed)} requests are turned away with more GPUs, too: load rises too fast" if shed else ""
    return f"rent {rental} at {cost} an hour: confirmed by simulation; {less}; {bound}{anyway}"


def _gpus(counts: Mapping[str, int]) -> str:
    return " and ".join(f"{count} {name}" for name, count in counts.items()) or "nothing"
