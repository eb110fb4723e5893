"""Peers without a GPU and without their packages: what each file says, and a made-up peer on the CPU."""

import re
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest

from baselines import peers
from baselines.pytorch.errors import NotBuilt, Unsupported
from tests.baselines.test_pytorch import of_torch, problem, record
from tests.cli.program import needs_program

try:
    import torch

    from baselines.pytorch import case, worker
    from baselines.pytorch.ops import gemm
except ImportError:
    torch = None


@needs_program
def test_each_file_says_what_it_is_and_setup_installs_a_version_that_it_takes():
    pins = dict(re.findall(r"^([\w-]+)==([\w.]+)", Path("scripts/requirements-peers.txt").read_text(), re.M))
    for (op, name), peer in peers.peers().items():
        assert Path(f"baselines/pytorch/ops/{op}.py").is_file() and peer.CALL and callable(peer.build), name
        assert hasattr(peer, "LOSSY") == hasattr(peer, "ALLOWED") and set(getattr(peer, "DTYPES", ())) <= {"bfloat16", "float16", "float32"}
        assert not hasattr(peer, "ONLY") or set(peer.ONLY) <= set(record(op)["fields"]), name
        assert peer.PACKAGE == "torch" or pins[peer.PACKAGE].startswith(peer.VERSIONS), name


def ready(monkeypatch, fields={}, installed="1.5", **made):  # noqa: B006 - read alone
    """A worker on the CPU with one peer, of gemm, and what it answers."""

    def version(name):
        if installed is None:
            raise PackageNotFoundError(name)
        return installed

    build = lambda problem: lambda t: (torch.nn.functional.linear(t["a"], t["b"], t.get("bias")),)
    peer = SimpleNamespace(**{"PACKAGE": "fake", "VERSIONS": ("1.",), "CALL": "fake.gemm(a, b)", "ONLY": {"act": "none"}, "build": build, **made})
    monkeypatch.setattr(peers, "version", version)
    monkeypatch.setattr(worker, "peers", lambda: {("gemm", "peer_fake"): peer})
    answers = worker.Answers(torch.device("cpu"))
    return answers, answers.answer({"ask": "ready", "variant": "peer_fake", "dtype": "bf16", "problem": record("gemm", **fields)})


@of_torch
def test_a_peer_is_judged_as_pytorch_is_and_says_who_it_is(monkeypatch):
    answers, answer = ready(monkeypatch)
    assert answers.facts()["peer_fake"] == "fake 1.5" and answers.answer({"ask": "peers"}) == {"lacking": {}}
    assert (answer["note"], answer["algorithm"], answer["roundings"]) == ("fake 1.5", "fake.gemm(a, b)", 1)
    assert answer["errors"][0]["max"] < 0.01 and "lossy" not in answer
    _, wrong = ready(monkeypatch, build=lambda problem: lambda t: (t["a"] @ t["b"].t(),))  # without its bias
    assert wrong["errors"][0]["max"] > 0.1
    _, lossy = ready(monkeypatch, LOSSY="4 bits", ALLOWED={"max": 0.5, "l2": 0.1})
    assert (lossy["lossy"], lossy["allowed"]) == ("4 bits", {"max": 0.5, "l2": 0.1})


@of_torch
@pytest.mark.parametrize("made, kind, says", [
    ({"fields": {"act": "silu"}}, Unsupported, "act=silu"),
    ({"DTYPES": ("float16",)}, Unsupported, "bfloat16"),
    ({"can_run": lambda problem: "too odd"}, Unsupported, "too odd"),
    ({"installed": None}, NotBuilt, "pip install fake"),
    ({"installed": "2.0"}, NotBuilt, "fake 2.0"),
    ({"build": lambda problem: __import__("nobody_has_this")}, NotBuilt, "nobody_has_this"),
    ({"build": lambda problem: lambda t: torch.empty(2) @ torch.empty(3)}, RuntimeError, "size"),
    ({"prepare": lambda problem, inputs: [].index(1)}, Unsupported, "not in list"),
])
def test_why_a_row_has_no_time(monkeypatch, made, kind, says):
    with pytest.raises(kind, match=re.escape(says)):
        ready(monkeypatch, **made)


@of_torch
def test_what_it_prepares_is_made_anew_from_other_inputs(monkeypatch):
    answers, _ = ready(monkeypatch, prepare=lambda problem, inputs: {**inputs, "b": inputs["b"].clone()})
    made = answers.case
    monkeypatch.setattr(made, "_warm_up", lambda: None)
    monkeypatch.setattr(made, "_graph", lambda repeats: SimpleNamespace(replay=made._launch))
    made.warm(SimpleNamespace(samples=lambda launch, *rest, **more: launch()), 1, 1)
    assert made.judge()["errors"][0]["max"] < 0.01 and torch.equal(made.prepared["b"], made.inputs["b"])
    made.prepared = {**made.prepared, "b": made.prepared["b"].roll(1)}  # as if it had kept what it prepared first
    made._launch()
    assert made.judge()["errors"][0]["max"] > 0.1


@of_torch
def test_fp8_operands_are_off_by_no_more_than_their_peer_allows():
    """The product itself, which needs a GPU, in fp32."""
    peer = peers.peers()["gemm", "peer_torch_scaled_mm"]
    parsed = problem("gemm", m=64, n=64, k=256, bias=0, scale=0.5)
    inputs = {name: torch.randn(64, 256, generator=torch.Generator().manual_seed(seed)).bfloat16() for seed, name in enumerate("ab")}
    made = peer.prepare(parsed, inputs)
    product = (made["a"].float() @ made["b"].float().t()) * made["a_scale"] * made["b_scale"]
    found = case.errors(product, case.reference(gemm, parsed, inputs)[0])
    assert all(allowed / 4 < found[name] < allowed for name, allowed in peer.ALLOWED.items())
