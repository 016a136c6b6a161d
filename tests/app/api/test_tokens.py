"""Tokens and joining, as those who hold them see it."""

from __future__ import annotations

import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from app.http.gate import SLOW_BODY_SECONDS
from tests.support.patience import patience, until
from tests.support.server import RunningServer
from tests.support.world import gpu_type

NODE = {"gpuType": "v100-16gb", "gpus": 4, "cpuCores": 48, "memoryGib": 256}


def test_a_token_is_shown_once_and_only_its_hash_is_kept(server: RunningServer) -> None:
    made = server.request("POST", "/api/v1/tokens", {"scope": "viewer", "label": "ci"})
    assert made.status == 201
    text = made.json["token"]
    assert server.request("GET", "/api/v1/whoami", token=text).json["scope"] == "viewer"
    assert text not in server.request("GET", "/api/v1/tokens").text
    assert text.split("_", 2)[2] not in everything_stored(server)


def test_an_idempotent_creation_repeats_the_same_token_and_keeps_no_readable_secret(server: RunningServer) -> None:
    key = {"Idempotency-Key": "token-once"}
    first = server.request("POST", "/api/v1/tokens", {"scope": "viewer"}, headers=key)
    again = server.request("POST", "/api/v1/tokens", {"scope": "viewer"}, headers=key)
    assert again.json == first.json
    assert again.headers["idempotency-replayed"] == "true"
    assert first.json["token"].split("_", 2)[2] not in everything_stored(server)


def test_an_idempotency_key_that_comes_again_later_masks_its_answer_anew(server: RunningServer) -> None:
    key, stored = {"Idempotency-Key": "token-later"}, []
    for _ in range(2):
        made = server.request("POST", "/api/v1/tokens", {"scope": "viewer"}, headers=key)
        with psycopg.connect(server.database_url) as connection:
            row = connection.execute("DELETE FROM idempotency WHERE key = 'token-later' RETURNING body").fetchone()
        assert row is not None
        stored.append((made.text.encode(), bytes(row[0])[16:]))
    (first, masked), (second, masked_later) = stored
    both = bytes(a ^ b for a, b in zip(first, second, strict=False))
    assert both != bytes(a ^ b for a, b in zip(masked, masked_later, strict=False))


@pytest.mark.parametrize("spelling", ["bearer {}", "BEARER {}", "Bearer  {}"])
def test_an_answer_is_repeated_to_its_token_however_the_header_is_spelt(server: RunningServer, spelling: str) -> None:
    key = {"Idempotency-Key": f"spelt-{spelling[:6]}-{len(spelling)}"}
    first = server.request("POST", "/api/v1/tokens", {"scope": "viewer"}, headers=key)
    spelt = {**key, "Authorization": spelling.format(server.admin_token)}
    again = server.request("POST", "/api/v1/tokens", {"scope": "viewer"}, headers=spelt)
    assert again.json == first.json


def test_case_24_a_revoked_token_is_refused_at_once(server: RunningServer) -> None:
    made = server.request("POST", "/api/v1/tokens", {"scope": "viewer"}).json
    assert server.request("GET", "/api/v1/gputypes", token=made["token"]).status == 200
    assert server.request("DELETE", f"/api/v1/tokens/{made['id']}").status == 200
    refused = server.request("GET", "/api/v1/gputypes", token=made["token"])
    assert (refused.status, refused.json["detail"]) == (401, "this token was revoked")


def test_only_the_holder_of_a_token_learns_that_it_has_ended(server: RunningServer) -> None:
    made = server.request("POST", "/api/v1/tokens", {"scope": "viewer", "expiresInSeconds": 900}).json
    with psycopg.connect(server.database_url) as connection:
        connection.execute("UPDATE token SET expires_at = '2026-01-02T03:04:05Z' WHERE id = %s", [made["id"]])
    refused = server.request("GET", "/api/v1/gputypes", token=made["token"])
    assert (refused.status, refused.json["detail"]) == (401, "this token expired at 2026-01-02T03:04:05.000Z")
    guessed = server.request("GET", "/api/v1/gputypes", token=f"gw_{made['id']}_{'x' * 43}")
    assert (guessed.status, guessed.json["detail"]) == (401, "the server does not know this token")


def test_case_24_a_write_whose_token_is_revoked_while_its_body_trickles_in_is_refused(server: RunningServer) -> None:
    made = server.request("POST", "/api/v1/tokens", {"scope": "operator"}).json
    body = json.dumps(gpu_type("too-late")).encode()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=patience())
    connection.putrequest("PUT", "/api/v1/gputypes/too-late")
    connection.putheader("Authorization", f"Bearer {made['token']}")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body[:10])
    time.sleep(2 * SLOW_BODY_SECONDS)
    assert server.request("DELETE", f"/api/v1/tokens/{made['id']}").status == 200
    connection.send(body[10:])
    assert connection.getresponse().status == 401
    connection.close()
    assert server.request("GET", "/api/v1/gputypes/too-late").status == 404


def test_a_token_bound_to_a_tenant_is_viewer_or_operator(server: RunningServer) -> None:
    reply = server.request("POST", "/api/v1/tokens", {"scope": "admin", "tenant": "shop"})
    assert reply.status == 422
    assert server.request("POST", "/api/v1/tokens", {"scope": "node"}).status == 422


def test_a_node_joins_once_with_its_token_and_becomes_an_object(server: RunningServer) -> None:
    join_token = server.request("POST", "/api/v1/jointokens", {}).json["token"]
    words = {"token": join_token, "node": "joined", **NODE}
    joined = server.request("POST", "/api/v1/join", words, token="")
    assert joined.status == 201, joined.text
    assert server.request("GET", "/api/v1/nodes/joined").json["spec"]["gpus"] == 4
    who = server.request("GET", "/api/v1/whoami", token=joined.json["token"]).json
    assert (who["scope"], who["node"]) == ("node", "joined")


def test_case_24_a_join_token_that_comes_twice_is_refused_and_raises_an_alarm(server: RunningServer) -> None:
    join_token = server.request("POST", "/api/v1/jointokens", {}).json["token"]
    server.request("POST", "/api/v1/join", {"token": join_token, "node": "first", **NODE}, token="")
    thief = server.request("POST", "/api/v1/join", {"token": join_token, "node": "thief", **NODE}, token="")
    assert thief.status == 409
    assert server.request("GET", "/api/v1/nodes/thief").status == 404
    entries = server.request("GET", "/api/v1/audit?limit=20").json["items"]
    assert any(e["outcome"] == "alarm" and e["name"] == "thief" for e in entries)
    assert "gpuwright_join_token_reuse_total 1.0" in server.request("GET", "/metrics").text


def test_case_24_a_join_token_for_one_node_is_no_good_for_another(server: RunningServer) -> None:
    join_token = server.request("POST", "/api/v1/jointokens", {"node": "mine"}).json["token"]
    words = {"token": join_token, "node": "yours", **NODE}
    assert server.request("POST", "/api/v1/join", words, token="").status == 403
    words["node"] = "mine"
    assert server.request("POST", "/api/v1/join", words, token="").status == 201


def test_case_24_a_join_token_for_any_node_takes_no_node_that_has_joined_from_its_holder(server: RunningServer) -> None:
    join_token = server.request("POST", "/api/v1/jointokens", {"node": "held"}).json["token"]
    held = server.request("POST", "/api/v1/join", {"token": join_token, "node": "held", **NODE}, token="")
    for_any = server.request("POST", "/api/v1/jointokens", {}).json["token"]
    taken = server.request("POST", "/api/v1/join", {"token": for_any, "node": "held", **NODE}, token="")
    assert (taken.status, "made for it by name" in taken.json["detail"]) == (409, True)
    assert server.request("GET", "/api/v1/whoami", token=held.json["token"]).status == 200
    entry = server.request("GET", "/api/v1/audit?limit=1").json["items"][0]
    assert (entry["verb"], entry["outcome"], entry["name"]) == ("join", "refused", "held")
    other = server.request("POST", "/api/v1/join", {"token": for_any, "node": "not-held", **NODE}, token="")
    assert other.status == 201


def test_a_node_with_gpus_of_another_type_than_was_declared_does_not_join(server: RunningServer) -> None:
    join_token = server.request("POST", "/api/v1/jointokens", {"node": "mine"}).json["token"]
    server.request("PUT", "/api/v1/nodes/mine", {"spec": NODE})
    words = {"token": join_token, "node": "mine", **NODE, "gpuType": "t4"}
    refused = server.request("POST", "/api/v1/join", words, token="")
    assert refused.status == 409
    assert "declared with gpuType v100-16gb, but its machine has t4" in refused.json["detail"]
    again = server.request("POST", "/api/v1/join", {**words, "gpuType": NODE["gpuType"]}, token="")
    assert again.status == 201, "the token was not spent"


@pytest.mark.slow
def test_case_24_one_join_token_brought_by_many_at_once_lets_one_of_them_in(server: RunningServer) -> None:
    join_token = server.request("POST", "/api/v1/jointokens", {}).json["token"]

    def bring(number: int) -> int:
        words = {"token": join_token, "node": f"raced-{number}", **NODE}
        return server.request("POST", "/api/v1/join", words, token="").status

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(bring, range(8))) == [201] + [409] * 7


def test_case_24_a_used_join_token_raises_an_alarm_also_when_its_time_is_over(server: RunningServer) -> None:
    made = server.request("POST", "/api/v1/jointokens", {}).json
    server.request("POST", "/api/v1/join", {"token": made["token"], "node": "in-time", **NODE}, token="")
    with psycopg.connect(server.database_url) as connection:
        connection.execute("UPDATE join_token SET expires_at = now() WHERE id = %s", [made["id"]])
    thief = server.request("POST", "/api/v1/join", {"token": made["token"], "node": "too-late", **NODE}, token="")
    assert thief.status == 409
    entry = server.request("GET", "/api/v1/audit?limit=1").json["items"][0]
    assert (entry["outcome"], entry["name"]) == ("alarm", "too-late")


def test_the_audit_names_the_token_that_a_join_made(server: RunningServer) -> None:
    join_token = server.request("POST", "/api/v1/jointokens", {}).json["token"]
    words = {"token": join_token, "node": "audited-node", **NODE}
    token = server.request("POST", "/api/v1/join", words, token="").json["token"]
    entries = server.request("GET", "/api/v1/audit?limit=3").json["items"]
    acts = [(entry["verb"], entry["kind"], entry["name"]) for entry in entries]
    node = "audited-node"
    assert acts == [("create", "Token", token.split("_")[1]), ("join", "Node", node), ("create", "Node", node)]
    assert token.split("_", 2)[2] not in str(entries)


def test_a_join_without_a_valid_token_waits_for_no_writer_and_makes_none_wait(server: RunningServer) -> None:
    unknown = {"token": f"gwj_{'a' * 12}_{'b' * 43}", "node": "stranger", **NODE}
    with psycopg.connect(server.database_url) as writer:
        writer.execute("SELECT value FROM version WHERE name = 'object' FOR UPDATE")
        assert server.request("POST", "/api/v1/join", unknown, token="").status == 401


@pytest.mark.slow
def test_case_24_a_used_join_token_that_comes_again_and_again_fills_no_table(server: RunningServer) -> None:
    join_token = server.request("POST", "/api/v1/jointokens", {}).json["token"]
    server.request("POST", "/api/v1/join", {"token": join_token, "node": "honest", **NODE}, token="")
    words = {"token": join_token, "node": "insistent", **NODE}
    statuses = {server.request("POST", "/api/v1/join", words, token="", peer="127.0.4.1").status for _ in range(20)}
    assert statuses == {409}
    entries = server.request("GET", "/api/v1/audit?limit=100").json["items"]
    assert 0 < sum(entry["name"] == "insistent" for entry in entries) < 15


def test_case_24_an_expired_join_token_is_refused(server: RunningServer) -> None:
    made = server.request("POST", "/api/v1/jointokens", {"expiresInSeconds": 900}).json
    with psycopg.connect(server.database_url) as connection:
        connection.execute("UPDATE join_token SET expires_at = now() WHERE id = %s", [made["id"]])
    words = {"token": made["token"], "node": "late", **NODE}
    assert server.request("POST", "/api/v1/join", words, token="").status == 401


def test_case_24_a_revoked_join_token_lets_nobody_in_and_the_list_says_so(server: RunningServer) -> None:
    made = server.request("POST", "/api/v1/jointokens", {"node": "unwanted"}).json
    assert server.request("DELETE", f"/api/v1/jointokens/{made['id']}").status == 200
    words = {"token": made["token"], "node": "unwanted", **NODE}
    assert server.request("POST", "/api/v1/join", words, token="").status == 401
    listed = server.request("GET", "/api/v1/jointokens?limit=500").json["items"]
    assert [item["state"] for item in listed if item["id"] == made["id"]] == ["expired"]


def test_case_24_joining_again_ends_the_tokens_of_before(server: RunningServer) -> None:
    tokens = []
    for _ in range(2):
        join_token = server.request("POST", "/api/v1/jointokens", {"node": "rejoined"}).json["token"]
        words = {"token": join_token, "node": "rejoined", **NODE}
        tokens.append(server.request("POST", "/api/v1/join", words, token="").json["token"])
    assert server.request("GET", "/api/v1/whoami", token=tokens[0]).status == 401
    assert server.request("GET", "/api/v1/whoami", token=tokens[1]).status == 200


def test_deleting_a_node_ends_its_tokens(server: RunningServer) -> None:
    join_token = server.request("POST", "/api/v1/jointokens", {}).json["token"]
    words = {"token": join_token, "node": "retired", **NODE}
    token = server.request("POST", "/api/v1/join", words, token="").json["token"]
    assert server.request("GET", "/api/v1/whoami", token=token).status == 200
    assert server.request("DELETE", "/api/v1/nodes/retired").status == 200
    # Told to every replica, this one included, by a notice.
    until(lambda: server.request("GET", "/api/v1/whoami", token=token).status == 401, "the token has ended")


def test_the_audit_tells_who_did_what_before_and_after(server: RunningServer) -> None:
    server.request("PUT", "/api/v1/gputypes/audited", gpu_type("audited"))
    server.request("PUT", "/api/v1/gputypes/audited", gpu_type("audited", pricePerHour=9))
    entry = server.request("GET", "/api/v1/audit?limit=1").json["items"][0]
    assert (entry["verb"], entry["kind"], entry["name"]) == ("update", "GpuType", "audited")
    assert (entry["before"]["spec"]["pricePerHour"], entry["after"]["spec"]["pricePerHour"]) == (1.2, 9)


def test_the_audit_cannot_be_rewritten(server: RunningServer) -> None:
    for sql in ("UPDATE audit SET verb = 'x'", "DELETE FROM audit", "TRUNCATE audit"):
        with psycopg.connect(server.database_url) as connection:
            try:
                connection.execute(sql.encode())
            except psycopg.errors.InsufficientPrivilege:
                continue
        raise AssertionError(f"{sql} went through")


def everything_stored(server: RunningServer) -> str:
    with psycopg.connect(server.database_url) as connection:
        rows = [
            connection.execute(f"SELECT coalesce(string_agg(t::text, ''), '') FROM {name} t").fetchone()
            for name in ("token", "audit", "change", "object")
        ]
        kept = connection.execute("SELECT body FROM idempotency").fetchall()
    return str(rows) + "".join(bytes(body).decode("latin-1") for (body,) in kept)
