"""Makes a release of a tag: wheel, sdist, locked requirements, deploy files, images, lists of contents, signed sums.

Usage: python -m scripts.release TAG FOLDER [--images] [--compose FILE] [--key SSH_KEY]

All is made from the tag's own tree, with the commit's time in place of now. Wheel and sdist are built twice: the same
tag gives the same files. Images are those that docker-compose.yml builds, by the engine of DOCKER_HOST; their times
differ.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

from scripts.contents import describe_image, describe_lock

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = Path("deploy", "testbed", "debian", "settings")  # of pip and apt, where no registry is reached; git has none
IMAGES = ("api", "planner", "agent", "gateway")
LOCKS = ("client", "server", "planner", "up", "agent", "docker", "onnx", "kubernetes", "parquet")  # what users install
SIGNED_FOR = "gpuwright-release"
SUMS = "SHA256SUMS"


class ReleaseError(Exception):
    """No release was made; the message says why."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tag", help="vVERSION, of the version that pyproject.toml has there")
    parser.add_argument("folder", type=Path, help="where the files go; it must be empty or not there")
    parser.add_argument("--images", action="store_true", help="also the images, as archives for `docker load`")
    parser.add_argument(
        "--compose",
        metavar="FILE",
        action="append",
        default=["docker-compose.yml"],
        help="a Compose file to add to docker-compose.yml",
    )
    parser.add_argument("--key", type=Path, help="signs the sums, by ssh-keygen; without it they are not signed")
    args = parser.parse_args()
    try:
        make_release(args.tag, args.folder.resolve(), args.key, args.compose if args.images else [])
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


def make_release(tag: str, folder: Path, key: Path | None, compose_files: list[str]) -> None:
    """Fills the folder; images are built by these files of Compose, if there are any."""
    began = time.monotonic()
    commit, seconds = read_tag(tag)
    if folder.exists() and any(folder.iterdir()):
        raise ReleaseError(f"{folder} is not empty")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpuwright-release-") as name:
        tree = Path(name)
        with tarfile.open(fileobj=io.BytesIO(run("git", "archive", "--format=tar", commit, cwd=ROOT))) as packed:
            packed.extractall(tree, filter="data")
        version = tomllib.loads((tree / "pyproject.toml").read_text())["project"]["version"]
        if tag != f"v{version}":
            raise ReleaseError(f"the tag is {tag}, and pyproject.toml has the version {version} there")
        build_packages(tree, folder, seconds)
        copy_locks(tree, folder, version, seconds)
        pack_deploy(folder, version, commit)
        if compose_files:
            save_images(tree, folder, version, seconds, compose_files)
    statement = describe_making(tag, commit, sum_files(folder))
    write_json(folder / "provenance.json", statement)
    sign(folder, key)
    signed = f"signed by {key.name}" if key else "not signed"
    print(f"{len(list(folder.iterdir()))} files of {tag} in {time.monotonic() - began:.0f} s, {signed}")


def read_tag(tag: str) -> tuple[str, int]:
    """Returns the commit of a tag, and its time."""
    if subprocess.run(["git", "show-ref", "--quiet", f"refs/tags/{tag}"], cwd=ROOT, check=False).returncode:
        raise ReleaseError(f"there is no tag {tag}; make one: git tag -a {tag}")
    commit, seconds = run("git", "log", "-1", "--format=%H %ct", f"refs/tags/{tag}", cwd=ROOT).decode().split()
    return commit, int(seconds)


def build_packages(tree: Path, folder: Path, seconds: int) -> None:
    """Builds wheel and sdist twice, and refuses what differs."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(seconds)}
    found = []
    for target in (folder, tree / ".again"):
        run(sys.executable, "-m", "hatchling", "build", "-d", str(target), cwd=tree, env=environment)
        found.append(sum_files(target))
    if found[0] != found[1]:
        raise ReleaseError(f"built twice, these came out different: {', '.join(found[0])}")
    shutil.rmtree(tree / ".again")


def copy_locks(tree: Path, folder: Path, version: str, seconds: int) -> None:
    """Copies the hashed requirements, and lists what each install has."""
    for lock in LOCKS:
        text = (tree / "requirements" / f"{lock}.txt").read_text()
        (folder / f"requirements-{lock}.txt").write_text(text)
        write_json(folder / f"gpuwright-{lock}.cdx.json", describe_lock(lock, version, text, seconds))


def pack_deploy(folder: Path, version: str, commit: str) -> None:
    """Packs what installs the parts: the chart, systemd's units, alerts, Compose's files, the examples."""
    name = f"gpuwright-deploy-{version}"
    packed = run("git", "archive", f"--prefix={name}/", commit, "deploy", "docker-compose.yml", "examples", cwd=ROOT)
    (folder / f"{name}.tar.gz").write_bytes(gzip.compress(packed, mtime=0))


def save_images(tree: Path, folder: Path, version: str, seconds: int, compose_files: list[str]) -> None:
    """Builds the images, saves each as an archive, and lists what is in it."""
    if (ROOT / SETTINGS).is_dir():
        shutil.copytree(ROOT / SETTINGS, tree / SETTINGS)
    files = [word for file in compose_files for word in ("-f", file)]
    run("docker", "compose", *files, "--progress", "plain", "build", cwd=tree)
    for image in IMAGES:
        name = f"gpuwright-{image}"
        with subprocess.Popen(["docker", "save", f"{name}:{version}"], stdout=subprocess.PIPE) as saving:
            assert saving.stdout is not None
            target = folder / f"{name}-{version}.tar.gz"
            with target.open("wb") as file, gzip.GzipFile("", "wb", 1, file, mtime=0) as packed:
                shutil.copyfileobj(saving.stdout, packed, 1 << 20)
        if saving.returncode:
            raise ReleaseError(f"docker save {name}:{version} ended with {saving.returncode}")
        write_json(folder / f"{name}-image.cdx.json", describe_image(name, version, seconds))


def describe_making(tag: str, commit: str, sums: dict[str, str]) -> dict[str, Any]:
    """Returns how the files were made: a statement of in-toto, with SLSA's provenance."""
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": sums[name]}} for name in sorted(sums)],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:gpuwright:release:v1",
                "externalParameters": {"tag": tag},
                "internalParameters": {"python": platform.python_version(), "machine": platform.machine()},
                "resolvedDependencies": [{"name": "gpuwright", "digest": {"gitCommit": commit}}],
            },
            "runDetails": {"builder": {"id": "urn:gpuwright:scripts/release.py"}},
        },
    }


def sign(folder: Path, key: Path | None) -> None:
    """Writes the sums of all files, and signs them."""
    sums = sum_files(folder)
    file = folder / SUMS
    file.write_text("".join(f"{sums[name]}  {name}\n" for name in sorted(sums)))
    if key:
        run("ssh-keygen", "-Y", "sign", "-q", "-f", str(key), "-n", SIGNED_FOR, str(file))


def sum_files(folder: Path) -> dict[str, str]:
    """Returns the SHA-256 of each file."""
    sums = {}
    for path in folder.iterdir():
        with path.open("rb") as file:
            sums[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return sums


def write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1) + "\n")


def run(*words: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> bytes:
    """Returns what a command prints; fails with the end of what it says."""
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{words[0]} ended with {done.returncode}: {done.stderr.decode(errors='replace')[-3000:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
