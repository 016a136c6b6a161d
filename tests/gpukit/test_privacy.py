"""What identifies a machine or its owner is not in a recording, and what a recording is for stays in it."""

from __future__ import annotations

from scripts.gpukit.privacy import hide, hide_commands, known_names

UUID, OTHER = "GPU-5ad3c0de-1234-5678-9abc-def012345678", "GPU-77777777-1234-5678-9abc-def012345678"


def test_each_uuid_has_one_stand_in_wherever_it_is_named() -> None:
    found = hide({"gpu": UUID, "ps": f"41 0 {UUID[:22]} 0", "more": [OTHER, f"{UUID}: lost", "MIG-" + UUID[4:]]}, [])
    assert found == {
        "gpu": "GPU-00000000-0000-0000-0000-000000000000",
        "ps": "41 0 GPU-00000000-0000-0000 0",
        "more": [
            "GPU-00000001-0000-0000-0000-000000000000",
            "GPU-00000000-0000-0000-0000-000000000000: lost",
            "MIG-00000000-0000-0000-0000-000000000000",
        ],
    }


def test_names_paths_and_addresses_are_left_out() -> None:
    words = "ada's Box-7.example: cannot open /home/me/models/x.pt, ~/secret/y or /etc; 10.1.2.3 of 3c:ec:ef:01:02:03"
    found = hide(words, ["Box-7.example", "Box-7", "ada"])
    assert found == "(name)'s (name): cannot open (path), (path) or (path); (address) of (address)"
    assert hide("0000:3B:00.0 00000000:3B:00.0", []) == "00000000:01:00.0 00000000:01:00.0"


def test_a_name_within_another_word_stays() -> None:
    assert hide("arithmetic on box7", ["box", "metic"]) == "arithmetic on box7"


def test_what_a_recording_is_for_stays() -> None:
    for text in (
        "NVIDIA GeForce RTX 3090 Ti", "570.124.06", "12.8", "MB/s", "gpuwright-serve: listening on 127.0.0.1:31454",
        "CUDA error 2: out of memory", "345 360 375", "2026-11-27", "and/or", "1 100.0 14:00:32",
    ):  # fmt: skip
        assert hide(text, ["box"]) == text
    assert hide({"rows": [{"sm_percent": 5.0, "is_client": True, "spread": None}]}, ["box"]) == {
        "rows": [{"sm_percent": 5.0, "is_client": True, "spread": None}]
    }


def test_names_of_processes_are_left_out_of_their_table() -> None:
    table = "PID ID SERVER DEVICE NAMESPACE COMMAND\n41 0 40 GPU-1 0 secret program\n42 0 40 GPU-1 0 other\n"
    assert hide_commands(table) == (
        "PID ID SERVER DEVICE NAMESPACE COMMAND\n41 0 40 GPU-1 0 command\n42 0 40 GPU-1 0 command\n"
    )
    assert hide_commands("Unrecognized command\n") == "Unrecognized command\n" and hide_commands("") == ""


def test_the_machine_has_a_name_and_root_is_none() -> None:
    names = known_names()
    assert "root" not in names and "" not in names and names == sorted(names, key=len, reverse=True)
