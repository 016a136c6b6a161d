"""The program `gpuwright-serve`: parses its arguments, listens, loads, serves, and exits once drained."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from agents.devices.simulated.speeds import PlayedLoad
from agents.programs.lifetime import ServerProcess, new_loop, run
from agents.programs.serve.backends import Backend, LoadedModel, Stub, Threaded
from agents.programs.serve.profile import ProfileError, StubProfile, read_file, read_words
from agents.programs.serve.server import ModelServer, ServerSettings

PROGRAM = "gpuwright-serve"


def main(words: list[str] | None = None) -> int:
    parser = _parser()
    args = parser.parse_args(words)
    most = max(args.batch, args.max_batch)
    if not 1 <= args.batch <= 4096 or args.queue < 1 or not 0 <= args.batch_timeout_ms <= 60_000:
        parser.error("allowed are --batch 1..4096, --queue from 1 and --batch-timeout-ms 0..60000")
    try:
        profile = read_file(Path(args.profile)) if args.profile else StubProfile()
        if args.latency:
            profile = StubProfile(read_words(args.latency), profile.memory_gib, profile.start_seconds)
    except ProfileError as error:
        ServerProcess(PROGRAM, args.host, args.port, 0.0).say(str(error))
        return 2
    try:
        shape = [int(size) for size in args.shape.split(",") if size]
    except ValueError:
        parser.error(f"--shape {args.shape!r} must look like 3,224,224")
    settings = ServerSettings(
        args.name,
        args.batch,
        most,
        args.batch_timeout_ms,
        args.queue,
        args.request_seconds,
        os.environ.pop("GPUWRIGHT_CONTROL_TOKEN", ""),
    )
    loop = new_loop()
    if load := _loader(args, shape):
        backend: Backend = Threaded(loop, load)
    else:
        held_gib = args.memory_gib or profile.needs_gib(most)
        played = PlayedLoad(args.name, args.latency, most) if args.latency else None
        backend = Stub(loop, profile, held_gib, os.environ, args.device == "cuda", played)
    start_seconds = 0.0 if load else args.start_seconds or profile.start_seconds
    process = ServerProcess(PROGRAM, args.host, args.port, start_seconds)
    return run(loop, process, backend, lambda deaf, end: ModelServer(loop, settings, backend, deaf, end))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(PROGRAM, description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=0, help="0: any free port, named in the log")
    add("--name", default="model", help="of the model, as in /v1/models/NAME:infer")
    add("--file", default="", help="an .onnx or TorchScript .pt model; without one a stub follows the profile")
    add("--kernel", default="", help="instead of a file: a load of the GPU: arithmetic, bandwidth, cache, launches")
    add("--profile", default="", help="a JSON file with latencyMs, memoryGib, startSeconds")
    add("--latency", default="", help="instead of a file: 1:10=21,100=8;8:22 (batch, SM%%, ms)")
    add("--memory-gib", type=float, default=0.0, help="device memory that the stub holds; 0: as in the profile")
    add("--start-seconds", type=float, default=0.0, help="time that the stub takes to load, if the profile has none")
    add("--shape", default="", help="of one sample of a TorchScript model: 3,224,224")
    add("--device", default="simulated", choices=("simulated", "cuda"), help="the device that the stub is a client of")
    add("--batch", type=int, default=1)
    add("--batch-timeout-ms", type=float, default=0.0)
    add("--max-batch", type=int, default=0, help="the largest batch that can be set later; 0: same as --batch")
    add("--queue", type=int, default=1024, help="most requests that may wait; beyond it: 503")
    add(
        "--request-seconds",
        type=float,
        default=15.0,
        help="limit for a whole request to arrive, and to read its answer",
    )
    return parser


def _loader(args: argparse.Namespace, shape: Sequence[int]) -> Callable[[], LoadedModel] | None:
    """Returns what loads the kernel or the file that is named; None for the stub."""
    if args.kernel:
        return lambda: open_kernel(args.kernel)
    return (lambda: open_model(Path(args.file), shape)) if args.file else None


def open_model(file: Path, shape: Sequence[int]) -> LoadedModel:
    """Opens a model file, whose suffix tells the format."""
    if file.suffix == ".onnx":
        from agents.programs.serve.onnx import OnnxModel

        return OnnxModel(file)
    from agents.programs.serve.torchscript import TorchModel

    return TorchModel(file, shape)


def open_kernel(name: str) -> LoadedModel:
    """Opens one of the loads of a GPU; raises ValueError for another name."""
    from agents.programs.serve.kernels import KERNELS, KernelModel

    if name not in KERNELS:
        raise ValueError(f"there is no kernel {name!r}; there are {', '.join(KERNELS)}")
    return KernelModel(name)


if __name__ == "__main__":
    sys.exit(main())
