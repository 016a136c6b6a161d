"""Every rule about the tree finds what breaks it, and names its file and line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from scripts.house import accounts, cases, files, loops, main_path, marks, mathematics, pins, plain, runbooks, skips
from scripts.house.__main__ import RULES
from scripts.house.tree import ROOT, Fault, Source, Tree

Rule = Callable[[Tree], Iterator[Fault]]

HASH = " \\\n    --hash=sha256:0\n"
PROJECTS = {
    "pyproject.toml": '[project]\ndependencies = ["a>=1"]\n[project.optional-dependencies]\n',
    "lab/pyproject.toml": '[project]\ndependencies = ["gpuwright", "b>=2"]\n',
}
JUDGE = {
    **{f"solvers/planning/judge/{name}.py": "RULES = ()\n" for name in ("gpus", "services", "tenants", "jobs")},
    "solvers/planning/judge/shapes.py": "def gpu_exists(): ...\n\n\nRULES = (gpu_exists,)\n",
}
MATHEMATICS = "`slo_holds` `power_budget_holds` `unserved_exists` `unplaced_exists`"
PAGES = {"README.md": "", "CONTRIBUTING.md": "", "SECURITY.md": ""}
LOOP = '"""A loop."""\n\n\n@njit({})\ndef add(): ...\n'
NO_ACCOUNTS = """found[seat.sm_percent] += 1
message += f"{seat.memory_gib} GiB"
more_gib = after.memory_gib - before.memory_gib
pressure += value_at(demand.pressure, seat.sm_percent)
"""
ACCOUNTS = {
    "gpu.held += seat.memory_gib": "gpu.held += seat.memory_gib",
    "self.sm_percent -= 10": "self.sm_percent -= 10",
    "left = 100 - int(gpu.sm_percent)": "100 - int(gpu.sm_percent)",
    "left = kind.memory_gib - sum(job.memory_gib for job in jobs)": (
        "kind.memory_gib - sum((job.memory_gib for job in jobs))"
    ),
    "self.free_gib = 16": "free_gib",
    "def spare_percent(): ...": "spare_percent",
    "class Gpu: free_sm: int": "free_sm",
}
GUIDE = "nav:\n  - Guide:\n      - a.md\n"
ALERT = "groups:\n  - alert: GpuwrightLost\n    annotations:\n      runbook_url: x/runbooks/{}/\n"
SAYS = "# GpuwrightLost\n\n## What it means\n\nx\n\n## What to look at\n\n```console\ngpuwright top\n```\n\n"
CLASS = '"""One."""\n\n\nclass Node: ...\n'
LONG_FUNCTION = '"""One."""\n\n\ndef work():\n' + "    pass\n" * 60
EVERY_CASE = "".join(f"def test_case_{number}_is_noticed(): ...\n" for number in cases.CASES if number != 7)


@pytest.mark.parametrize(
    ("rule", "contents", "said"),
    [
        (
            files.a_module_says_what_it_is_for_and_stays_small,
            {"app/a.py": '"""A."""\n' + "\n" * 400},
            "app/a.py:401: 401 lines; a file that long is two files",
        ),
        (files.a_module_says_what_it_is_for_and_stays_small, {"app/a.py": "A = 1\n"}, "app/a.py:1: no docstring"),
        (
            files.a_module_says_what_it_is_for_and_stays_small,
            {"tests/utils.py": '"""All sorts."""\n'},
            "tests/utils.py:1: utils says nothing; name what the module is about",
        ),
        (
            files.no_two_classes_of_the_product_have_one_name,
            {"app/a.py": CLASS, "lab/b.py": CLASS, "lab/tests/c.py": CLASS},
            "lab/b.py:4: class Node has the name of the one at app/a.py:4",
        ),
        (
            files.functions_are_short_but_for_compiled_loops,
            {"app/a.py": LONG_FUNCTION, "app/b.py": LONG_FUNCTION.replace("def", "@njit\ndef")},
            "app/a.py:4: work has 60 lines; split it by topic",
        ),
        (
            files.half_of_the_files_are_short,
            {"app/a.py": "\n", "app/b.py": "\n" * 101},
            "app/b.py:1: half of the product's files have 101 lines, as this one has, or more",
        ),
        (
            files.every_package_has_a_file_that_makes_it_one,
            {"app/__init__.py": "", "app/room/a.py": ""},
            "app/room/__init__.py:1: is missing, so its folder is no package",
        ),
        (
            skips.a_test_is_skipped_through_its_needs_alone,
            {"tests/test_a.py": "\n@pytest.mark.skipif(True)\ndef test_a() -> None: ...\n"},
            "tests/test_a.py:2: pytest.mark.skipif: tests/support/needs.py has what a test may need",
        ),
        (
            plain.the_product_says_nothing_stilted,
            {"app/a.py": "\n# It starts anew.\n", "tests/test_a.py": "# anew\n"},
            'app/a.py:2: "anew"',
        ),
        (
            files.sql_stands_in_the_store_alone,
            {"app/api/a.py": "\nfrom sqlalchemy import text\n", "app/store/b.py": "from sqlalchemy import text\n"},
            "app/api/a.py:2: SQL stands in app/store/ alone",
        ),
        (
            accounts.accepted_loads_are_read_from_offers,
            {"app/a.py": "from solvers.latency import latency_at\nfrom solvers.latency import limits, timeout_for\n"},
            "app/a.py:2: limits: accepted loads are read from Offers alone",
        ),
        (
            accounts.accepted_loads_are_read_from_offers,
            {"solvers/planning/a.py": "\nlatency.max_rate(1, 2, 3, 4)\n", "lab/a.py": "latency.limits(9)"},
            "solvers/planning/a.py:2: latency.max_rate: accepted loads are read from Offers alone",
        ),
        *(
            (
                accounts.free_room_is_counted_by_the_fleets_rooms_alone,
                {"solvers/mudi/a.py": f"{NO_ACCOUNTS}{line}\n", "solvers/planning/judge/a.py": line},
                f"solvers/mudi/a.py:5: {what}: free SM% and memory are fields of FleetRooms alone",
            )
            for line, what in ACCOUNTS.items()
        ),
        (
            loops.a_loop_is_inner_when_python_never_calls_it,
            {"solvers/a.py": LOOP.format("inner=True"), "solvers/b.py": "from solvers import a\n\na.add()\n"},
            "solvers/a.py:5: add is called from Python, so it is not inner",
        ),
        (
            loops.a_loop_is_inner_when_python_never_calls_it,
            {"solvers/a.py": LOOP.format("cache=True")},
            "solvers/a.py:5: add is never called from Python: say inner=True",
        ),
        (
            cases.a_case_has_a_test_with_its_number,
            {"tests/test_a.py": EVERY_CASE},
            "scripts/house/cases.py:1: no test is called test_case_7_...",
        ),
        (
            pins.every_requirement_is_pinned_and_hashed_and_names_no_host,
            {"requirements/up.txt": f"a==1{HASH}b==2 \\\n    # via a\n"},
            "requirements/up.txt:3: not pinned and hashed: b==2 \\",
        ),
        (
            pins.every_requirement_is_pinned_and_hashed_and_names_no_host,
            {"requirements/up.txt": f"a==1{HASH}    # via https" + "://example.org\n"},
            "requirements/up.txt:3: a host",
        ),
        (
            pins.what_the_projects_ask_for_is_locked,
            {**PROJECTS, "requirements/client.txt": f"a==1.5{HASH}", "requirements/lab.txt": f"b==1.0{HASH}"},
            "lab/pyproject.toml:1: b>=2: requirements/lab.txt has 1.0; run make lock",
        ),
        (
            pins.no_two_requirement_files_disagree_on_a_version,
            {"requirements/dev.txt": f"a[x]==1{HASH}", "requirements/up.txt": f"\na==2{HASH}"},
            "requirements/up.txt:1: a==2, but 1 in dev.txt",
        ),
        (
            pins.development_has_all_that_up_installs,
            {f"requirements/{name}.txt": f"a==1{HASH}" for name in ("agent", "server", "solvers", "up")}
            | {"requirements/dev.txt": ""},
            "requirements/dev.txt:1: lacks a, which `make up` installs",
        ),
        (
            mathematics.the_rules_that_are_named_are_the_judges,
            {**JUDGE, "docs/mathematics.md": f"\n\n## The rules\n\n`gpu_exists` {MATHEMATICS}\n`is_nice`\n"},
            "docs/mathematics.md:6: the judge has no rule `is_nice`",
        ),
        (
            mathematics.the_rules_that_are_named_are_the_judges,
            {**JUDGE, "docs/mathematics.md": f"`gpu_exists`\n\n## The rules\n\n{MATHEMATICS}\n"},
            "docs/mathematics.md:3: this section lacks the judge's rule `gpu_exists`",
        ),
        (
            runbooks.each_alert_has_its_page_and_each_page_its_alert,
            {runbooks.RULES_FILE: ALERT.format("Lost"), "docs/runbooks/index.md": ""},
            f"{runbooks.RULES_FILE}:2: Lost has no page docs/runbooks/Lost.md",
        ),
        (
            runbooks.each_alert_has_its_page_and_each_page_its_alert,
            {runbooks.RULES_FILE: ALERT.format("Found"), "docs/runbooks/Lost.md": ""},
            f"{runbooks.RULES_FILE}:2: Lost does not lead to its page",
        ),
        (
            runbooks.a_page_says_what_it_means_what_to_look_at_and_what_to_do,
            {"docs/runbooks/Lost.md": f"{SAYS}## What to do\n\n- Only this.\n"},
            "docs/runbooks/Lost.md:1: has fewer than 2 steps of what to do",
        ),
        (
            main_path.the_main_path_is_at_most_twenty_pages_and_forty_thousand_words,
            {"mkdocs.yml": f"{GUIDE}  - Results:\n      - b.md\n", "docs/a.md": "a " * 40_001, "docs/b.md": "b"},
            "mkdocs.yml:1: the main path has 40,001 words; at most 40,000; the longest page is a.md",
        ),
        (
            main_path.the_main_path_is_at_most_twenty_pages_and_forty_thousand_words,
            {"mkdocs.yml": GUIDE + "      - a.md\n" * 20, "docs/a.md": "a"},
            "mkdocs.yml:1: the main path has 21 pages; at most 20",
        ),
        (
            main_path.few_words_are_defined,
            {"docs/words.md": "| word | meaning |\n|---|---|\n" + "| Plan | what runs |\n" * 26},
            "docs/words.md:1: defines 26 words; at most 25",
        ),
        (
            marks.every_block_says_whether_it_is_run_shown_or_no_command,
            {**PAGES, "docs/a.md": "\n```\nls\n```\n"},
            "docs/a.md:2: '': mark it: sh is run by a test, console is shown, text is no command",
        ),
        (
            marks.every_block_says_whether_it_is_run_shown_or_no_command,
            {**PAGES, "docs/a.md": "\n```sh\nls\n```\n"},
            "docs/a.md:2: nothing runs the blocks of this page",
        ),
        (
            marks.every_target_of_make_that_a_page_names_exists,
            {**PAGES, "Makefile": "up: install\n", "docs/a.md": "`make up`\n`make coffee`\n"},
            "docs/a.md:2: make has no target coffee",
        ),
        (
            marks.the_architecture_page_lists_every_room,
            {"docs/architecture.md": "`app/api/`", "app/api/__init__.py": "", "app/new/__init__.py": ""},
            "docs/architecture.md:1: lacks the room `app/new/`",
        ),
    ],
)  # fmt: skip
def test_a_planted_fault_is_found_and_named_with_its_line(
    tmp_path: Path, rule: Rule, contents: dict[str, str], said: str
) -> None:
    for name, text in contents.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert [str(fault) for fault in rule(Tree(tmp_path))] == [said]


def test_a_benchmark_without_a_row_is_found(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/benchmarks.md").write_text("| `solve` | a plan |\n")
    found = [fault.text for fault in marks.the_benchmarks_page_has_a_row_for_each_benchmark(Tree(tmp_path))]
    assert "lacks a row for `cycle`" in found and "lacks a row for `solve`" not in found


def test_make_check_knows_every_rule_of_these_modules() -> None:
    families = (cases, files, loops, main_path, marks, mathematics, pins, runbooks)
    rules = [rule for module in families for rule in vars(module).values() if _is_a_rule(rule, module.__name__)]
    assert len(rules) > 15
    assert [rule for rule in rules if rule not in RULES] == []


def _is_a_rule(found: object, module: str) -> bool:
    words = getattr(found, "__annotations__", {})
    return getattr(found, "__module__", "") == module and words == {"tree": "Tree", "return": "Iterator[Fault]"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rooms", "find"), [(accounts.APART, accounts.find_accounts), (accounts.READERS, accounts.find_readings)]
)
def test_each_room_that_is_left_alone_has_an_account_of_its_own(
    rooms: Mapping[str, str], find: Callable[[Source], Iterator[tuple[int, str]]]
) -> None:
    for room in rooms:
        paths = [ROOT / room] if room.endswith(".py") else sorted((ROOT / room).rglob("*.py"))
        assert any(next(find(Source(str(path), path.read_text())), None) for path in paths), room
