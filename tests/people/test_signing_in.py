"""People sign in at a real provider, from a browser and from the command line, and get the rights of their groups."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from tests.people.conftest import House
from tests.people.oidc_provider import Browser
from tests.support.forked import ROOT
from tests.support.patience import patience

pytestmark = pytest.mark.slow


def find_session(browser: Browser) -> str:
    return next((cookie.value or "" for cookie in browser.cookies if cookie.name == "gpuwright"), "")


def read_audit(house: House) -> list[tuple[str, str, str]]:
    found = house.server.request("GET", "/api/v1/audit?limit=500").json["items"]
    return [(one["verb"], one["outcome"], one["detail"]) for one in found if one["kind"] == "Session"]


def test_a_browser_that_signs_in_comes_back_to_the_page_that_it_asked_for(house: House) -> None:
    browser = Browser().open(f"{house.server.url}/plans?range=1d")
    assert "Sign in with 127.0.0.1" in browser.page
    begin = re.search(r'href="(/sign-in/provider[^"]*)"', browser.page)
    assert begin
    browser.open(begin[1].replace("&amp;", "&"))
    assert browser.address.startswith(house.provider.issuer)
    browser.sign_in("anna")
    assert (browser.status, browser.address) == (200, f"{house.server.url}/plans?range=1d")
    assert find_session(browser)
    assert read_audit(house)[0][:2] == ("sign in", "done")
    assert re.fullmatch(r"person:[0-9a-f]{16}, of group 'platform', named 'anna@example\.com'", read_audit(house)[0][2])
    browser.open("/what-if")
    assert browser.status == 200, "an operator may ask"
    browser.open("/audit")
    assert browser.status == 403, "and is no admin"


def test_who_is_in_no_group_of_ours_gets_nothing(house: House) -> None:
    browser = Browser().open(f"{house.server.url}/sign-in/provider").sign_in("bert")
    assert browser.status == 403
    assert "bert@example.com is known, but is in no group that may use this server" in browser.page
    assert not find_session(browser)
    assert read_audit(house)[0][:2] == ("sign in", "refused")


def test_an_answer_counts_only_in_the_browser_that_asked_and_only_once(house: House) -> None:
    anna, thief = Browser(), Browser()
    stopped = StoppedReturn(house.server.url)
    with stopped.of(anna):
        anna.open(f"{house.server.url}/sign-in/provider").sign_in("anna")
    assert thief.open(stopped.address).status == 401, "a code of another browser"
    thief.open(f"{house.server.url}/sign-in/provider")
    assert thief.open(stopped.address).status == 401, "also after having begun"
    words = parse_qs(urlsplit(stopped.address).query)
    for wrong in ({"state": "x"}, {"iss": "https://elsewhere.example"}, {"code": ""}, {"error": "access_denied"}):
        query = urlencode({**{name: value[0] for name, value in words.items()}, **wrong})
        assert anna.open(f"{house.server.url}/sign-in/provider/return?{query}").status == 401, wrong
        assert not find_session(anna)
    assert anna.open(stopped.address).status == 200
    assert find_session(anna)
    assert anna.open(stopped.address).status == 401, "the provider takes a code once"


def test_no_other_site_starts_a_sign_in_and_no_address_leads_back_into_one(house: House) -> None:
    anna = Browser()
    led = anna.open(f"{house.server.url}/sign-in/provider", headers={"Sec-Fetch-Site": "cross-site"})
    assert led.address == f"{house.server.url}/sign-in"
    for back in (
        "/./sign-in/provider",
        "/%2e/sign-in/provider",
        "/x/../sign-in/provider",
        "//evil.example",
        "/sign-in",
    ):
        led = Browser().open(f"{house.server.url}/sign-in/provider?{urlencode({'to': back})}").sign_in("anna")
        assert (led.status, led.address) == (200, f"{house.server.url}/"), back


def test_signing_out_ends_what_signing_in_has_made(house: House) -> None:
    browser = Browser().open(f"{house.server.url}/sign-in/provider").sign_in("anna")
    before = live_tokens(house)
    browser.open("/sign-out", {})
    assert len(live_tokens(house)) == len(before) - 2, "the session, and the token that was made for it"


def live_tokens(house: House) -> list[str]:
    found = house.server.request("GET", "/api/v1/tokens?limit=500").json["items"]
    return [one["id"] for one in found if not one["revokedAt"] and one["label"] != "console · link"]


def test_an_id_token_counts_once_also_after_what_it_gave_was_revoked(house: House) -> None:
    id_token = get_id_token(house, "anna")
    first = house.server.request("POST", "/api/v1/people", {"idToken": id_token}, token="")
    assert (first.status, first.json["scope"]) == (201, "operator")
    for _ in range(2):
        again = house.server.request("POST", "/api/v1/people", {"idToken": id_token}, token="")
        assert (again.status, again.json["detail"]) == (401, "this ID token has been used; sign in again")
        assert house.server.request("DELETE", f"/api/v1/tokens/{first.json['id']}").status == 200


def get_id_token(house: House, name: str) -> str:
    """Gets it from the provider by a device code, as the command line does."""
    asked = {"client_id": "command-line", "scope": "openid email groups"}
    begun = json.loads(Browser().open(f"{house.provider.issuer}/device/auth", asked).page)
    browser = Browser().open(begun["verification_uri"])
    browser.send_form(user_code=begun["user_code"])
    browser.send_form()
    browser.sign_in(name)
    grant = "urn:ietf:params:oauth:grant-type:device_code"
    form = {"grant_type": grant, "device_code": begun["device_code"], "client_id": "command-line"}
    return str(json.loads(Browser().open(f"{house.provider.issuer}/token", form).page)["id_token"])


class StoppedReturn:
    """Keeps the address with which a browser would come back, instead of letting it."""

    def __init__(self, server_url: str) -> None:
        self._start = f"{server_url}/sign-in/provider/return"
        self.address = ""

    @contextmanager
    def of(self, browser: Browser) -> Iterator[None]:
        browser.stop_at = self._start
        yield
        browser.stop_at, self.address = "", browser.address


def log_in(house: House, config: Path, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs `gpuwright login`, and signs this person in where it says."""
    environment = os.environ | {"GPUWRIGHT_CONFIG": str(config)}
    command = [sys.executable, "-m", "cli.main", "login", "--server", house.server.url, *words]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr and process.stdout
        where = process.stderr.readline()
        first = where and process.stderr.readline()
        said = re.search(r"open (\S+) and type in the code (\S+)", first)
        if said:
            browser = Browser().open(said[1])
            browser.send_form(user_code=said[2])
            browser.send_form()
            browser.sign_in(name)
        out, err = process.communicate(timeout=patience())
    return subprocess.CompletedProcess(command, process.returncode, out, where + first + err)


def call(config: Path, *words: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "cli.main", *words],
        cwd=ROOT, env=os.environ | {"GPUWRIGHT_CONFIG": str(config)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return ran.stdout + ran.stderr


def test_the_command_line_signs_in_by_a_code_and_keeps_the_token(house: House, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    done = log_in(house, config, "anna")
    assert done.returncode == 0, done.stderr
    assert "signed in as anna@example.com, scope operator, until 20" in done.stderr
    where = f"sign in at {house.provider.issuer} as client command-line for {house.server.url}"
    assert done.stderr.startswith(f"{where} (scopes openid email groups)\n")
    assert done.stdout == f"context 127.0.0.1-{house.server.port} is in use\n"
    assert config.stat().st_mode & 0o077 == 0
    assert "operator" in call(config, "whoami")
    assert "gw_" not in done.stdout + done.stderr


def test_one_of_several_tenants_can_be_chosen(house: House, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    assert "scope viewer, of tenant shop" in log_in(house, config, "cora").stderr
    assert "scope operator, of tenant media" in log_in(house, config, "cora", "--tenant", "media").stderr
    refused = log_in(house, config, "cora", "--tenant", "bank")
    assert refused.returncode == 3
    assert "cora@example.com is known, but is in no group that may use this server for tenant bank" in refused.stderr
    assert "media" in call(config, "whoami"), "who is refused keeps what they had"


def test_what_a_person_made_can_be_ended_with_them_also_after_their_sign_in_is_forgotten(
    house: House, tmp_path: Path
) -> None:
    config = tmp_path / "config.json"
    assert log_in(house, config, "dora").returncode == 0
    made = call(config, "token", "create", "--scope", "admin", "--out", str(tmp_path / "made"))
    assert "expires" not in made and "written to" in made
    by_made = call(tmp_path / "none", "--server", house.server.url, "--token-file", str(tmp_path / "made"),
                   "token", "create", "--scope", "viewer", "--label", "grandchild")  # fmt: skip
    assert "gw_" in by_made
    tokens = house.server.request("GET", "/api/v1/tokens?limit=500").json["items"]
    (person,) = {one["createdBy"].partition("/")[0] for one in tokens if one["label"].startswith("dora@")}
    theirs = {one["id"] for one in tokens if one["createdBy"].startswith(person)}
    assert len(theirs) == 3 and {one["createdBy"] for one in tokens if one["label"] == "grandchild"} == {
        f"{person}/token"
    }
    admin = tmp_path / "admin"
    admin.write_text(house.server.admin_token)
    of_admin = ("--server", house.server.url, "--token-file", str(admin), "token")
    assert person in call(tmp_path / "none", *of_admin, "list")
    ended = call(tmp_path / "none", *of_admin, "revoke", "--made-by", person)
    assert {line.split()[0] for line in ended.splitlines()} == {f"token/{name}" for name in theirs}
    assert "no valid token was made by" in call(tmp_path / "none", *of_admin, "revoke", "--made-by", person)
    assert "401" in call(config, "-v", "whoami")


def test_without_the_provider_nobody_new_comes_in_and_who_is_in_stays(house: House, tmp_path: Path) -> None:
    browser = Browser().open(f"{house.server.url}/sign-in/provider").sign_in("anna")
    assert browser.status == 200
    config = tmp_path / "config.json"
    assert log_in(house, config, "anna").returncode == 0
    house.provider.stop()
    assert browser.open(f"{house.server.url}/services").status == 200
    assert "operator" in call(config, "whoami")
    house.server.restart()  # what it knew of the provider is forgotten
    stranger = Browser().open(f"{house.server.url}/sign-in/provider")
    assert stranger.status == 503
    assert "the provider did not answer as it should; the server&#39;s log says how" in stranger.page
    assert "/.well-known/openid-configuration" in house.server.log_path.read_text()
