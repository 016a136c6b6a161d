"""`gpuwright profile`: measure how fast a model is on a GPU, and what it needs, and write its Profile."""

from __future__ import annotations

import argparse
from typing import Any

from cli import exits
from cli.arguments import add_connection_arguments, completes, part, whole
from cli.exits import Failed
from cli.profiling.asked import ModelVariant, models, read_model, read_place, seconds_each, shares, whole_numbers
from cli.talk.client import ApiClient
from cli.talk.contexts import resolve

EPILOG = """\
On a node, one of its GPUs is emptied as by a drain and reserved; the node's agent starts a copy of the model by its
template for each setting, with an MPS limit, and asks it in a closed loop. What is measured next is where the curve
is least sure; it ends when it is known well enough. A campaign goes on when this command, the server or the agent
ends: the same command follows it. It stops by itself when the SLO of a service on the node suffers.

With --neighbours, copies of the models run side by side, always busy, each with its MPS limit: first each alone, then
together. Pressure and sensitivity are written into the Profiles of all of them.

At a URL, a server that runs already (gpuwright-serve) is asked from here; only what it lets change is measured.

`neighbours` reads latencies measured alone and beside others (CSV: model, smPercent, neighbours as MODEL:SM% with +
between them, latencyMs; also gpuType, batch, samples, clockMhz) and gives pressure and sensitivity with their spread.
`predict` learns from the Profiles in files what other GPU types would measure, for a first plan. Whenever Profiles are
applied here, declared ones that were predicted are predicted again.

Examples:
  gpuwright profile resnet50/fp16 --on node-7/2
  gpuwright profile resnet50 --on node-7 --accuracy 0.02 --apply
  gpuwright profile resnet50 --on node-7 --neighbours bert-base,yolov5s/fp16 --apply
  gpuwright profile digits --file digits.onnx --on here --apply
  gpuwright profile resnet50 --url http://127.0.0.1:8000 --gpu-type cpu
  gpuwright profile import perf.csv --model resnet50/fp16 --gpu-type v100-16gb
  gpuwright profile import sweep/*.json --model llama-8b/fp16 --gpu-type h100-80gb --parallel 1
  gpuwright profile neighbours pairs.csv --gpu-type v100-16gb
  gpuwright profile predict fleet.yaml
  gpuwright profile --list
"""
IMPORT, NEIGHBOURS, PREDICT = "import", "neighbours", "predict"
OPTIONS: dict[str, set[str]] = {  # that a form reads
    "--on": {"file", "accuracy", "most", "batches", "sm", "clocks", "neighbours", "seconds", "apply", "as-draft"},
    "--url": {"accuracy", "most", "batches", "seconds", "gpu-type", "sm-percent", "journal", "apply", "as-draft"},
    IMPORT: {"batches", "gpu-type", "sm-percent", "model", "parallel", "tokens-per-iteration", "apply", "as-draft"},
    NEIGHBOURS: {"gpu-type"},
    PREDICT: {"apply", "as-draft"},
    "--list": set(),
    "--stop": set(),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument(
        "subject",
        nargs="?",
        metavar="MODEL[/VARIANT]",
        help="the model to measure; or import, neighbours, predict",
    )
    files = parser.add_argument(
        "files", nargs="*", metavar="FILE", help="with import, neighbours and predict: files to read"
    )
    completes(files, "files")
    where = parser.add_mutually_exclusive_group()
    completes(where.add_argument("--on", metavar="NODE[/GPU]", help="measure on a node"), "nodes")
    file = parser.add_argument("--file", metavar="FILE", help="with --on: declares the model; .onnx among its models")
    completes(file, "files")
    where.add_argument("--url", metavar="URL", help="measure the server at http://HOST:PORT")
    where.add_argument("--list", action="store_true", help="list campaigns, the newest first")
    where.add_argument("--stop", metavar="CAMPAIGN", help="end a campaign")
    effort = parser.add_argument_group("effort")
    effort.add_argument("--accuracy", type=part, metavar="SHARE", help="error of the curve to reach; default 0.04")
    effort.add_argument("--most", type=whole(1, 256), metavar="N", help="most measurements; default 16")
    effort.add_argument("--batches", type=whole_numbers, metavar="B,...", help="default 1,2,4,8,16,32")
    effort.add_argument("--sm", type=shares, metavar="P,...", help="SM%%; default 10,20,30,40,50,60,80,100")
    effort.add_argument("--clocks", type=whole_numbers, metavar="MHZ,...", help="default: the highest of the GPU type")
    neighbours = "measure it beside these on one GPU, for pressure and sensitivity"
    effort.add_argument("--neighbours", type=models, metavar="MODEL,...", help=neighbours)
    least = "least time at each setting; default 3, at a URL 0.5"
    effort.add_argument("--seconds", type=seconds_each, metavar="S", help=least)
    about = parser.add_argument_group("with --url, import and neighbours")
    about.add_argument("--gpu-type", metavar="NAME", help="the GPU type that the Profile is about")
    about.add_argument("--sm-percent", type=whole(1, 100), metavar="P", help="its SM%%; default 100")
    about.add_argument("--model", metavar="MODEL[/VARIANT]", help="with import: the model")
    completes(about.add_argument("--journal", metavar="FILE", help="where measurements are kept meanwhile"), "files")
    llm = parser.add_argument_group("with import, of a language model")
    llm.add_argument("--parallel", type=whole(1, 64), metavar="GPUS", help="fit an iteration on so many GPUs")
    tokens = "what the server computes at most in an iteration; default 2048"
    llm.add_argument("--tokens-per-iteration", type=whole(1, 1_000_000), metavar="N", help=tokens)
    page = llm.add_argument("--metrics", metavar="FILE", help="vLLM's /metrics: memory, blocks and data ranks")
    completes(page, "files")
    llm.add_argument("--experts", action="store_true", help="experts are spread over its data ranks")
    parser.add_argument("--apply", action="store_true", help="apply the Profile; else it is printed only")
    parser.add_argument("--as-draft", action="store_true", help="with --apply: also one that errs more than its goal")
    parser.add_argument("--json", action="store_true", help="profiles, measurements, seconds, left_out_error")
    add_connection_arguments(parser)


def run(args: argparse.Namespace) -> int:
    form = _form(args)
    _refuse_others(args, form)
    if args.as_draft and not args.apply:
        raise Failed("--as-draft needs --apply: only then is a Profile refused")
    if form in ("--list", "--stop"):
        from cli.profiling import campaign

        with ApiClient(resolve(args)) as client:
            return campaign.list_campaigns(client, args) if args.list else campaign.stop_campaign(client, args)
    if form == IMPORT:
        return _import(args)
    if form in (NEIGHBOURS, PREDICT):
        return _learn(args)
    wanted = read_model(args.subject)
    if args.files:
        raise Failed(f"{args.files[0]!r} is one word too many; see: gpuwright profile --help")
    return _profile_node(args, wanted) if form == "--on" else _profile_url(args, wanted)


def _form(args: argparse.Namespace) -> str:
    """Returns which of the forms in OPTIONS the command has."""
    if args.list or args.stop:
        return "--list" if args.list else "--stop"
    if args.on or args.url:
        if args.subject:
            return "--on" if args.on else "--url"
    elif args.subject in (IMPORT, NEIGHBOURS, PREDICT):
        return str(args.subject)
    elif args.subject:
        raise Failed("say where to measure: --on NODE[/GPU] for a node, or --url URL for a server that runs")
    raise Failed("name a model: gpuwright profile MODEL[/VARIANT] --on NODE[/GPU] | --url URL")


def _refuse_others(args: argparse.Namespace, form: str) -> None:
    """Refuses an option that the form does not read, instead of passing over it."""
    for option in sorted(set().union(*OPTIONS.values()) - OPTIONS[form]):
        value = getattr(args, option.replace("-", "_"))
        if value is not None and value is not False:
            forms = ", ".join(name for name, options in OPTIONS.items() if option in options)
            raise Failed(f"--{option} is for {forms}; {form} does not read it")


def _profile_node(args: argparse.Namespace, wanted: ModelVariant) -> int:
    from cli.profiling import campaign
    from cli.profiling.brought import declare_model, withdraw_model

    place = read_place(args.on)
    with ApiClient(resolve(args)) as client:
        campaign.check_place(client, place)
        is_new = bool(args.file) and declare_model(client, wanted, args.file)
        try:
            return campaign.run_campaign(client, args, wanted, place)
        except Failed as failure:  # a file that is not there, say
            if is_new and campaign.has_measured_nothing(failure):
                withdraw_model(client, wanted)
            raise


def _profile_url(args: argparse.Namespace, wanted: ModelVariant) -> int:
    from cli.profiling.at_url import measure_url

    found = measure_url(args, wanted)
    if args.apply:
        _apply(args, [found.profile.manifest], found.remedy)
    found.journal.remove()
    return exits.OK


def _learn(args: argparse.Namespace) -> int:
    if not args.files:
        what = "CSV of latencies beside neighbours" if args.subject == NEIGHBOURS else "manifests with Profiles"
        raise Failed(f"name the files to read: {what}")
    if args.subject == NEIGHBOURS:
        from cli.profiling.neighbours import neighbours

        neighbours(args)
        return exits.OK
    from cli.profiling.predicted import predict

    profiles = predict(args)
    if args.apply and profiles:
        _apply(args, profiles, "measure some of these models on these GPU types")
    return exits.OK


def _import(args: argparse.Namespace) -> int:
    from cli.profiling.imported import import_files

    if not args.files:
        raise Failed("name the files to import: of perf_analyzer, model analyzer, genai-perf, AIPerf, vLLM or MLPerf")
    for option, given in (
        ("--tokens-per-iteration", args.tokens_per_iteration),
        ("--metrics", args.metrics),
        ("--experts", args.experts),
    ):
        if given and not args.parallel:
            raise Failed(f"{option} needs --parallel GPUS: only a language model has iterations")
    if args.parallel:
        from cli.profiling.iterations import import_token_times

        profiles, remedy = import_token_times(args), "import more loads, between and beyond these"
    else:
        profiles, remedy = import_files(args), "import more batches, between these"
    if args.apply:
        _apply(args, profiles, remedy)
    return exits.OK


def _apply(args: argparse.Namespace, profiles: list[dict[str, Any]], remedy: str) -> None:
    from cli.profiling.applied import apply_profiles

    with ApiClient(resolve(args)) as client:
        apply_profiles(client, profiles, remedy, as_draft=args.as_draft)
