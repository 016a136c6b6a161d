"""`gpuwright assess`: what a Kubernetes cluster's GPUs cost now and who holds them, by reading alone."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from agents.contract.installs import say_install
from cli import exits, sources
from cli.arguments import add_file_arguments, completes, duration
from cli.exits import Failed
from cli.output import format_json, plain, say

if TYPE_CHECKING:
    from cli.estate.assessment import Assessment
    from clusters.certified.posing import KnownProfiles
    from clusters.estate import Estate, WorkloadName
    from clusters.metrics.measuring import PrometheusReading
    from clusters.objects import ClusterObjects
    from clusters.price_list import PriceList
    from clusters.promises import WorkloadPromise

USUAL_SECONDS = duration("7d")  # that Prometheus is asked for

EPILOG = """\
Reads the cluster of the kubeconfig's context, or that of the pod that it runs in, by get and list alone: nothing is
written, and neither an agent nor a server of gpuwright is needed. A list that may not be read leaves its figures out.

Prices are those of --prices, then OpenCost's by --prometheus, then examples that come with gpuwright; each names its
source. A node is paid whole, and its price is divided by the GPUs that pods hold of it. The last lines name what is
not known, and what that takes.

Examples:
  gpuwright assess --demo
  gpuwright assess --context production --prices prices.yaml --prometheus http://127.0.0.1:9090
  kubectl get nodes,pods,rs,deploy,sts,jobs,hpa,pdb -A -o json | gpuwright assess -f - --prices prices.yaml
  gpuwright assess --demo --backtest 7d --html page.html
  gpuwright assess -o json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig; its current one if left out")
    kubeconfig = parser.add_argument("--kubeconfig", metavar="FILE", help="instead of KUBECONFIG or ~/.kube/config")
    completes(kubeconfig, "files")
    add_file_arguments(parser, required=False)
    parser.add_argument("--demo", action="store_true", help="a recorded cluster of 60 GPUs")
    completes(parser.add_argument("--prices", metavar="FILE", help="what you pay (docs/assess.md)"), "files")
    slo = parser.add_argument("--slo", metavar="FILE", help="what workloads are to keep, in place of annotations")
    completes(slo, "files")
    profiles = parser.add_argument(
        "--profiles", metavar="FILE", action="append", default=[],
        help="file or folder of Profiles, as `gpuwright profile` writes them; may be given several times",
    )  # fmt: skip
    completes(profiles, "files")
    prometheus = parser.add_argument_group("loads and use of GPUs")
    prometheus.add_argument("--prometheus", metavar="URL", help="a Prometheus server, or what speaks its API")
    token = prometheus.add_argument("--prometheus-token-file", metavar="FILE", help="file that holds a token for it")
    completes(token, "files")
    prometheus.add_argument(
        "--from", dest="seconds", type=duration, metavar="TIME", default=0,
        help="how far to look back; default 7d, or the time of --backtest where that is longer",
    )  # fmt: skip
    parser.add_argument(
        "--backtest", type=duration, metavar="TIME", default=0,
        help="what replicas by load would have cost and kept in that time, with what was known then: 7d",
    )  # fmt: skip
    page = parser.add_argument("--html", metavar="FILE", help="write one page as well, to show to others")
    completes(page, "files")
    parser.add_argument(
        "-o", "--output", choices=("text", "json", "yaml"), default="text",
        help="yaml: as manifests, for validate, solve, size, simulate and apply",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    from cli.estate.assessment import Assessment, show, write_data
    from cli.estate.manifests import write_manifests
    from cli.estate.options import check_options
    from clusters.backtesting import run_backtest
    from clusters.bill import draw_bill
    from clusters.demo import read_demo_loads
    from clusters.price_list import read_examples
    from clusters.reading import read_estate
    from clusters.savings import find_savings
    from clusters.scaling.adoption import find_known_bounds
    from clusters.sharing import estimate_sharing

    check_options(args)
    known = _profiles(args)
    objects, given = _read(args)
    estate = read_estate(objects)
    promises = _promises(args, estate)
    reading = _measure(args, estate, promises)
    bill = draw_bill(estate, read_examples(), given, reading.node_prices if reading else None)
    loads, gpus = (reading.loads, reading.gpus) if reading else read_demo_loads() if args.demo else (None, ())
    kept = {name: promise.latency for name, promise in promises.items() if promise.latency}
    savings = find_savings(estate, bill, loads, kept) if loads else None
    adopted = find_known_bounds(objects, estate) if args.backtest else {}
    backtest = run_backtest(estate, bill, loads, kept, args.backtest, adopted) if loads and args.backtest else None
    sharing = estimate_sharing(estate, bill, loads, savings.needs, gpus) if loads and savings else None
    certified = campaigns = language = None
    if savings and loads and sharing:
        from cli.estate.levels import advise, certify, weigh_campaigns

        certified = certify(known, estate, bill, loads, savings.needs, promises) if known else None
        language = advise(known, estate, bill, loads, promises) if known else None
        campaigns = weigh_campaigns(estate, sharing, promises, certified)
    found = Assessment(estate, bill, reading, savings, backtest, sharing, certified, campaigns or (), language or ())
    if args.html is not None:  # first: a reader of the text may stop early, as `head` does
        _write_page(args.html, found, objects.origin)
    if args.output == "text":
        show(found)
    elif args.output == "json":
        print(format_json(write_data(found)))
    else:
        print(write_manifests(found, promises), end="")
    return exits.OK


def _write_page(file: str, found: Assessment, origin: str) -> None:
    from cli.estate.page import write_page

    text = write_page(found, origin, datetime.now(UTC))
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failed(f"{file} cannot be written: {error.strerror}") from None
    say(f"written: {file}")


def _profiles(args: argparse.Namespace) -> KnownProfiles | None:
    """Returns the profiles of files, whose faults are named before a cluster is read; None without any."""
    if not args.profiles:
        return None
    if not (args.prometheus or args.demo):
        raise Failed("--profiles are for loads that were measured: give --prometheus, or --demo")
    if find_spec("numba") is None:
        raise Failed(f"--profiles asks the planner, which is not installed: {say_install('kubernetes,solvers')}")
    from cli.estate.profile_files import read_profiles

    return read_profiles(args.profiles)


def _promises(args: argparse.Namespace, estate: Estate) -> Mapping[WorkloadName, WorkloadPromise]:
    """Returns what each workload is to keep, by the file of --slo and by annotations."""
    from clusters.promises import PromisesRefused, find_promises

    name, text = sources.read([args.slo])[0] if args.slo else ("", "")
    try:
        return find_promises(estate, text, name)
    except PromisesRefused as refused:
        raise Failed(f"{name} has faults", particulars=refused.faults) from None


def _measure(
    args: argparse.Namespace, estate: Estate, promises: Mapping[WorkloadName, WorkloadPromise]
) -> PrometheusReading | None:
    """Returns what Prometheus has of the estate; None where none is named."""
    from clusters.metrics.measuring import measure
    from clusters.metrics.prometheus import PrometheusFailed, PrometheusServer

    if not args.prometheus:
        return None
    server = PrometheusServer(args.prometheus, _read_token(args.prometheus_token_file), _pause)
    percentiles = {name: promise.slo["percentile"] for name, promise in promises.items() if promise.slo}
    try:
        return measure(estate, server, args.seconds or max(USUAL_SECONDS, args.backtest), time.time(), percentiles)
    except PrometheusFailed as failed:
        remedy = f"; {failed.remedy}" if failed.remedy else ""
        raise Failed(f"Prometheus at {args.prometheus}: {failed}{remedy}", exits.UNREACHABLE) from None


def _read_token(file: str | None) -> str:
    """Returns the token in a file; one that no header can carry is not repeated."""
    from clusters.plugin_tokens import ONLY_ONE, is_token

    if not file:
        return ""
    token = sources.read([file])[0][1].strip()
    if not is_token(token):
        raise Failed(f"{file} does not hold {ONLY_ONE}")
    return token


def _read(args: argparse.Namespace) -> tuple[ClusterObjects, PriceList | None]:
    """Returns the objects of the cluster, and the prices that its owner gives."""
    from clusters.demo import PRICES_NAME, read_demo
    from clusters.objects import name_absent, objects_of

    if sum((bool(args.demo), bool(args.files), bool(args.context or args.kubeconfig))) > 1:
        raise Failed("give one of --demo, -f, or --context and --kubeconfig: each is a cluster")
    prices = _prices(*sources.read([args.prices])[0]) if args.prices else None
    if args.demo:
        objects, text = read_demo()
        return objects, prices or _prices(PRICES_NAME, text)
    if args.files:
        files = sources.read(args.files, recursive=args.recursive)
        return name_absent(objects_of(item for name, text in files for item in _items(name, text))), prices
    return _read_cluster(args), prices


def _read_cluster(args: argparse.Namespace) -> ClusterObjects:
    from clusters.api_server import read_cluster
    from clusters.kubeconfigs import ClusterUnreachable, choose_cluster

    try:
        config = choose_cluster(args.context, args.kubeconfig, os.environ)
        return read_cluster(config, _pause, _progress)
    except ClusterUnreachable as error:
        raise Failed(str(error), exits.UNREACHABLE) from None
    finally:
        _clear_progress()


def _pause(seconds: float) -> None:
    _clear_progress()
    say(f"a server is busy: asking again in {seconds:.0f} s")
    time.sleep(seconds)


def _progress(kind: str, count: int, left: int | None) -> None:
    """Shows on a terminal how far a list is."""
    if sys.stderr is not None and sys.stderr.isatty():
        more = f" of {count + left:,}" if left else ""
        print(f"\r\x1b[Kreading {plain(kind)}: {count:,}{more}", end="", file=sys.stderr, flush=True)


def _clear_progress() -> None:
    if sys.stderr is not None and sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _items(name: str, text: str) -> list[dict[str, object]]:
    try:
        found = json.loads(text)
    except RecursionError:
        raise Failed(f"{name} is nested too deeply") from None
    except ValueError as error:
        raise Failed(f"{name} is not JSON: {error}; write it with: kubectl get ... -A -o json") from None
    items = found.get("items", [found]) if isinstance(found, dict) else found
    if not isinstance(items, list) or not all(isinstance(item, dict) and "kind" in item for item in items):
        raise Failed(f"{name} has no Kubernetes objects; write it with: kubectl get ... -A -o json")
    return items


def _prices(name: str, text: str) -> PriceList:
    from clusters.price_list import PricesRefused, read_prices

    try:
        return read_prices(text, name)
    except PricesRefused as refused:
        raise Failed(f"{name} has faults", particulars=refused.faults) from None
