"""A release is made from its tag alone, the same each time; with the key of its signer one finds every change to it."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from scripts.contents import LOCKED, describe_lock
from scripts.release import SIGNED_FOR, SUMS
from tests.support.forked import ROOT
from tests.support.needs import need

pytestmark = pytest.mark.slow
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of what is committed here, with the tag of its version."""
    folder = tmp_path_factory.mktemp("release") / "clone"
    git(ROOT, "clone", "--quiet", "--no-tags", str(ROOT), str(folder))
    git(folder, "tag", f"v{VERSION}")
    return folder


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def release(clone: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scripts.release", *map(str, words)]
    return subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False)


def test_the_same_tag_gives_the_same_files_whatever_lies_beside_it(clone: Path, tmp_path: Path) -> None:
    assert release(clone, f"v{VERSION}", tmp_path / "one").returncode == 0
    (clone / "app" / "not_committed.py").write_text("x = 1\n")
    (clone / "README.md").write_text("changed, and not committed\n")
    assert release(clone, f"v{VERSION}", tmp_path / "two").returncode == 0
    git(clone, "checkout", "--quiet", "README.md")
    (clone / "app" / "not_committed.py").unlink()
    sums = (tmp_path / "one" / SUMS).read_text()
    assert sums == (tmp_path / "two" / SUMS).read_text()
    for line in sums.splitlines():
        checksum, name = line.split("  ")
        assert hashlib.sha256((tmp_path / "two" / name).read_bytes()).hexdigest() == checksum
    assert {line.split("  ")[1] for line in sums.splitlines()} | {SUMS} == {
        p.name for p in (tmp_path / "one").iterdir()
    }
    with zipfile.ZipFile(tmp_path / "one" / f"gpuwright-{VERSION}-py3-none-any.whl") as wheel:
        assert "app/main.py" in wheel.namelist() and "app/not_committed.py" not in wheel.namelist()
    with tarfile.open(tmp_path / "one" / f"gpuwright-{VERSION}.tar.gz") as sdist:
        assert f"gpuwright-{VERSION}/cli/main.py" in sdist.getnames()
    with tarfile.open(tmp_path / "one" / f"gpuwright-deploy-{VERSION}.tar.gz") as deploy:
        assert f"gpuwright-deploy-{VERSION}/deploy/chart/Chart.yaml" in deploy.getnames()
    statement = json.loads((tmp_path / "one" / "provenance.json").read_text())
    made_from = statement["predicate"]["buildDefinition"]["resolvedDependencies"][0]["digest"]["gitCommit"]
    assert made_from == git(clone, "rev-parse", f"v{VERSION}").strip()
    subjects = {f"{one['digest']['sha256']}  {one['name']}" for one in statement["subject"]}
    assert subjects == {line for line in sums.splitlines() if "provenance.json" not in line}


def test_a_changed_file_or_sum_is_found_by_who_knows_the_signer(clone: Path, tmp_path: Path) -> None:
    keygen = need("ssh-keygen", "openssh-client")
    key, dist = tmp_path / "key", tmp_path / "dist"
    subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    assert release(clone, f"v{VERSION}", dist, "--key", key).returncode == 0
    (tmp_path / "signers").write_text(f"release {key.with_suffix('.pub').read_text()}")

    def is_right() -> bool:
        words = ("-Y", "verify", "-f", tmp_path / "signers", "-I", "release", "-n", SIGNED_FOR)
        signature = ("-s", dist / f"{SUMS}.sig")
        signed = subprocess.run([keygen, *words, *signature], input=(dist / SUMS).read_bytes(), capture_output=True)
        summed = subprocess.run(["sha256sum", "--check", "--quiet", SUMS], cwd=dist, capture_output=True)
        return signed.returncode == summed.returncode == 0

    assert is_right()
    wheel = dist / f"gpuwright-{VERSION}-py3-none-any.whl"
    wheel.write_bytes(wheel.read_bytes() + b"x")
    assert not is_right()
    changed = hashlib.sha256(wheel.read_bytes()).hexdigest()
    lines = [
        f"{changed}  {wheel.name}" if wheel.name in line else line for line in (dist / SUMS).read_text().splitlines()
    ]
    (dist / SUMS).write_text("\n".join(lines) + "\n")
    assert not is_right(), "the sums fit, and are not the signed ones"


def test_what_is_no_release_is_refused_in_a_sentence(clone: Path, tmp_path: Path) -> None:
    (tmp_path / "full" / "x").mkdir(parents=True)
    git(clone, "tag", "v9.9.9")
    for words, said in (
        (("v1.2.3", tmp_path / "a"), "there is no tag v1.2.3"),
        (("main", tmp_path / "a"), "there is no tag main"),
        (("v9.9.9", tmp_path / "b"), f"the tag is v9.9.9, and pyproject.toml has the version {VERSION} there"),
        ((f"v{VERSION}", tmp_path / "full"), "is not empty"),
        ((f"v{VERSION}", tmp_path / "c", "--key", tmp_path / "no-key"), "ssh-keygen ended with"),
    ):
        done = release(clone, *words)
        assert done.returncode == 1 and said in done.stderr and "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize("lock", ["client", "planner"])
def test_every_locked_package_is_listed_once(lock: str) -> None:
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    listed = describe_lock(lock, VERSION, text, 0)["components"]
    wanted = {line.split()[0] for line in text.splitlines() if line and not line.startswith((" ", "#"))}
    assert {f"{one['name']}=={one['version']}" for one in listed} == wanted
    assert len({one["bom-ref"] for one in listed}) == len(listed) == len(LOCKED.findall(text))
