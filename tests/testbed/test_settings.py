"""What builds of images are told about the servers of pip and apt: what the caller's own pip and apt use."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.needs import need

pytestmark = pytest.mark.slow  # pip reads its settings
SCRIPT = Path(__file__).parents[2] / "deploy" / "testbed" / "debian" / "settings.sh"


def noted(folder: Path, **variables: str) -> Path:
    """The folder that the script writes, where only these variables speak of a proxy."""
    need("pip", "python3-pip")
    shutil.copy(SCRIPT, folder)
    said = {name: os.environ[name] for name in ("PATH", "HOME")}
    subprocess.run([folder / SCRIPT.name], env=said | variables, check=True)
    return folder / "settings"


def pip_says(settings: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    parser.read(settings / "pip.conf")  # a name that stands twice would be refused, by pip as well
    return dict(parser["global"])


def test_pips_variables_become_its_settings_and_a_path_of_this_machine_does_not(tmp_path: Path) -> None:
    said = pip_says(
        noted(
            tmp_path,
            PIP_INDEX_URL="https://index.invalid/simple",
            PIP_EXTRA_INDEX_URL="https://one.invalid https://two.invalid",
            PIP_FIND_LINKS="/opt/wheels",
            PIP_CERT="/etc/hostname",
        )
    )
    assert said["index-url"] == "https://index.invalid/simple"
    assert said["extra-index-url"] == "https://one.invalid https://two.invalid"
    assert not {"find-links", "cert"} & set(said)


def test_a_proxy_of_the_environment_reaches_pip_and_apt(tmp_path: Path) -> None:
    settings = noted(tmp_path, https_proxy="http://proxy.invalid:1", http_proxy="http://proxy.invalid:2")
    assert pip_says(settings)["proxy"] == "http://proxy.invalid:1"
    assert 'Acquire::http::Proxy "http://proxy.invalid:2";' in (settings / "apt.conf").read_text().splitlines()


def test_pips_own_proxy_counts_more_than_that_of_the_environment(tmp_path: Path) -> None:
    settings = noted(tmp_path, https_proxy="http://proxy.invalid:1", PIP_PROXY="http://proxy.invalid:3")
    assert pip_says(settings)["proxy"] == "http://proxy.invalid:3"


def test_certificates_are_those_that_pip_is_told_to_trust_and_nobody_else_reads_the_settings(tmp_path: Path) -> None:
    trusted = tmp_path / "trusted.pem"
    trusted.write_text("certificates\n")
    settings = noted(tmp_path, PIP_CERT=str(trusted))
    assert (settings / "ca.pem").read_text() == "certificates\n"
    assert settings.stat().st_mode & 0o077 == 0
    assert {file.name for file in settings.iterdir()} == {"pip.conf", "ca.pem", "apt.conf"}
