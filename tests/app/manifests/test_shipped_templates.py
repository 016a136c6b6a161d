"""What apply knows of the shipped templates is what the agent reads from its files."""

from __future__ import annotations

from agents.templates.form import PathArg
from agents.templates.reading import read
from app.manifests.shipped_templates import SHIPPED, find_unfit

FOR_JOBS = {"gpuwright-train", "gpuwright-batch"}


def test_the_arguments_of_shipped_templates_are_those_of_their_files() -> None:
    templates = {name: template.form for name, template in read().items() if name not in FOR_JOBS}
    assert {name: known.takes for name, known in SHIPPED.items()} == {
        name: frozenset(form.args) for name, form in templates.items()
    }
    assert {name: known.needs for name, known in SHIPPED.items()} == {
        name: frozenset(arg for arg, form_of in form.args.items() if form_of.default is None)
        for name, form in templates.items()
    }
    assert {name: known.start_seconds for name, known in SHIPPED.items()} == {
        name: form.start_seconds for name, form in templates.items()
    }
    assert isinstance(templates["vllm"].args["model"], PathArg)
    for name, known in SHIPPED.items():
        argument, default = known.longest
        assert not argument or templates[name].args[argument].default == default


def test_unknown_and_missing_arguments_of_shipped_templates_are_named() -> None:
    variants = [
        {"name": "fp16", "runtime": {"template": "gpuwright-serve", "args": {"model": "m", "precision": "fp16"}}},
        {"name": "llm", "runtime": {"template": "vllm", "args": {"image": "my/vllm:1"}}},
        {"name": "own", "runtime": {"template": "of-our-nodes", "args": {"anything": 1}}},
        {"name": "bare"},
    ]
    unknown, image, missing = find_unfit({"variants": variants})
    assert unknown.startswith("variant fp16: template gpuwright-serve, as it ships, has no argument precision; it ")
    assert "has no argument image" in image
    assert missing == "variant llm: template vllm, as it ships, needs the argument model"


def test_a_server_that_refuses_what_the_context_of_its_model_promises_is_named() -> None:
    def found(template: str, **args: object) -> list[str]:
        runtime = {"template": template, "args": {"model": "m", **args}}
        return list(find_unfit({"variants": [{"name": "fp16", "llm": {"contextTokens": 8192}, "runtime": runtime}]}))

    (fault,) = found("vllm")
    assert fault.startswith("variant fp16: template vllm, as it ships, refuses requests above maxLength 4096, fewer ")
    assert "above maxLength 8191, fewer tokens than contextTokens 8192" in found("sglang", maxLength=8191)[0]
    assert found("vllm", maxLength=8192) == found("sglang", maxLength=9000) == found("gpuwright-llm") == []
