"""noisefloor.capture(): which problems a PyTorch program's calls are, that they compute what they did, and the files of them."""

import built  # first: finds the module
import csv
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import captured
import noisefloor
import pytest
from noisefloor import _mapping

try:
    import torch
    import torch.nn.functional as F
    from noisefloor import _capture
except ImportError:
    torch = None
needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")
PROGRAM = os.environ.get("NOISEFLOOR_BINARY", "")
needs_program = pytest.mark.skipif(not os.path.isfile(PROGRAM), reason="NOISEFLOOR_BINARY names no program")


def program(*arguments, **keywords):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=500, **keywords)


def listed(folder):
    """{(op, problem): {network: count}}"""
    result = program("list", "problems", "--problems", folder)
    assert result.returncode == 0, result.stderr
    lines = (line.rstrip("]").split() for line in result.stdout.splitlines())
    return {(op, text): uses for op, text, uses in ((line[0], line[1], line[-1].strip("[")) for line in lines)}


@needs_program
def test_problems_are_written_as_the_program_writes_them(tmp_path):
    kinds = {"integer": int, "real": float, "flag": lambda text: text == "1"}
    for op, data in _mapping.CATALOGUE.items():
        wanted = {}
        for values, _ in noisefloor._core.samples(op, 3, 60)[0]:
            typed = {field["name"]: kinds.get(field["type"], str)(values[field["name"]]) for field in data["fields"]}
            if typed.get("pad") == typed.get("kernel", -2) // 2:
                del typed["pad"]
            wanted[_mapping.problem(op, "fp32", **typed).text] = values
        folder = tmp_path / op
        folder.mkdir()
        with open(folder / f"{op}.csv", "w", newline="") as stream:
            writer = csv.DictWriter(stream, ["network", *values, "count"], lineterminator="\n")
            writer.writeheader()
            writer.writerows({"network": "any", "count": 1} | values for values in wanted.values())
        assert {text for _, text in listed(folder)} == set(wanted), op


def test_a_field_out_of_range_is_a_reason():
    with pytest.raises(_mapping.Unmapped, match="conv2d takes kernel from 1 to 31, not 33"):
        _mapping.problem("conv2d", "fp32", n=1, h=64, w=64, cin=8, cout=8, kernel=33)


@pytest.mark.parametrize("words, says", [([], "name a script behind --"), (["--"], "name a script"), (["--", "none.py"], "none.py: no such script"),
                                         (["--", "python3", "-m"], "name a script"), (["--", __file__], "PyTorch is not here")])
def test_the_command_says_what_is_missing(words, says, tmp_path):
    code = "import runpy, sys; sys.modules['torch'] = None; runpy.run_module('noisefloor', run_name='__main__', alter_sys=True)"
    result = subprocess.run([sys.executable, "-c", code, "capture", "--out", "x", *words], cwd=tmp_path, capture_output=True, text=True,
                            env=os.environ | {"PYTHONPATH": built.FOLDER})
    assert result.returncode == 2 and says in result.stderr and not list(tmp_path.iterdir()), result


CALLS = {
    "linear": (lambda t: F.linear(t(2, 3, 8), t(4, 8), t(4)), "gemm m=6,n=4,k=8"),
    "linear of a view": (lambda t: F.linear(t(2, 8, 3).transpose(1, 2), t(4, 8), t(4)), "gemm m=6,n=4,k=8"),
    "linear of a vector": (lambda t: F.linear(t(8), t(4, 8)), "gemm m=1,n=4,k=8,bias=0"),
    "matmul": (lambda t: t(2, 3, 8) @ t(8, 4), "gemm m=6,n=4,k=8,bias=0"),
    "one matrix for a batch": (lambda t: torch.bmm(t(2, 3, 8), t(8, 4).expand(2, 8, 4)), "gemm m=6,n=4,k=8,bias=0"),
    "addmm": (lambda t: torch.addmm(t(6, 4), t(6, 8), t(8, 4), alpha=0.5), "gemm m=6,n=4,k=8,scale=0.5,bias=0,residual=1"),
    "addmm, half": (lambda t: torch.addmm(t(4), t(6, 8), t(8, 4), beta=0.5), "addmm: gemm adds with a factor of 1 only"),
    "products": (lambda t: torch.bmm(t(2, 3, 8), t(2, 8, 4)), "bmm: gemm has no batch of matrices"),
    "attention": (lambda t: F.scaled_dot_product_attention(t(2, 3, 5, 16), t(2, 3, 7, 16), t(2, 3, 7, 16)),
                  "attention batch=2,heads=3,seq_q=5,seq_kv=7,dim=16"),
    "attention of one head": (lambda t: F.scaled_dot_product_attention(t(2, 5, 16), t(2, 5, 16), t(2, 5, 16), scale=0.5),
                              "attention batch=2,heads=1,seq_q=5,seq_kv=5,dim=16,scale=0.5"),
    "attention further down": (lambda t: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*[t(2, 3, 5, 16)] * 3),
                               "attention batch=2,heads=3,seq_q=5,seq_kv=5,dim=16"),
    "the usual scale": (lambda t: F.scaled_dot_product_attention(t(1, 1, 5, 16), t(1, 1, 5, 16), t(1, 1, 5, 16), scale=0.25),
                        "attention batch=1,heads=1,seq_q=5,seq_kv=5,dim=16"),
    "causal": (lambda t: F.scaled_dot_product_attention(t(1, 2, 5, 8), t(1, 2, 5, 8), t(1, 2, 5, 8), is_causal=True),
               "scaled_dot_product_attention: attention is not causal"),
    "masked": (lambda t: F.scaled_dot_product_attention(t(1, 2, 5, 8), t(1, 2, 5, 8), t(1, 2, 5, 8), t(5, 5)),
               "scaled_dot_product_attention: attention takes no mask"),
    "conv2d": (lambda t: F.conv2d(t(2, 8, 6, 5), t(4, 8, 3, 3), t(4), padding=1), "conv2d n=2,h=6,w=5,cin=8,cout=4"),
    "conv2d, no bias": (lambda t: F.conv2d(t(2, 8, 6, 5), t(4, 8, 1, 1)), "conv2d n=2,h=6,w=5,cin=8,cout=4,kernel=1,bias=0"),
    "conv2d, same": (lambda t: F.conv2d(t(2, 8, 6, 5), t(4, 8, 3, 3), t(4), padding="same"), "conv2d n=2,h=6,w=5,cin=8,cout=4"),
    "conv2d, stride": (lambda t: F.conv2d(t(2, 8, 6, 5), t(4, 8, 3, 3), t(4), stride=2, padding=0),
                       "conv2d n=2,h=6,w=5,cin=8,cout=4,stride=2,pad=0"),
    "conv2d of a patch": (lambda t: F.conv2d(t(2, 8, 6, 6), t(4, 8, 2, 2), t(4), stride=2),
                          "convolution: conv2d has odd kernels; it is 2-D, kernel 2x2, stride 2, pad 0"),
    "depthwise": (lambda t: F.conv2d(t(2, 8, 6, 6), t(8, 1, 3, 3), groups=8), "convolution: convolutions have no groups, and it has 8"),
    "dilated": (lambda t: F.conv2d(t(2, 8, 6, 6), t(8, 8, 3, 3), dilation=2), "convolution: convolutions have no dilation"),
    "conv1d": (lambda t: F.conv1d(t(2, 8, 6), t(4, 8, 3), padding=1), "convolution: conv2d is square; it is 1-D, kernel 3, stride 1, pad 1"),
    "conv3d": (lambda t: F.conv3d(t(2, 8, 5, 4, 3), t(4, 8, 3, 1, 1), t(4), padding=(1, 0, 0)),
               "conv3d_temporal batch=2,frames=5,hw=12,cin=8,cout=4"),
    "conv_transpose2d": (lambda t: F.conv_transpose2d(t(2, 8, 6, 5), t(8, 4, 4, 4), t(4), stride=2, padding=1),
                         "conv_transpose2d n=2,h=6,w=5,cin=8,cout=4"),
    "group_norm": (lambda t: F.group_norm(t(2, 8, 6, 5), 4, t(8), t(8), 1e-6), "groupnorm n=2,hw=30,channels=8,groups=4,eps=1e-06"),
    "group_norm, bare": (lambda t: F.group_norm(t(2, 8, 6, 5), 4), "native_group_norm: groupnorm has a weight and a bias"),
    "layer_norm": (lambda t: F.layer_norm(t(2, 6, 8), (8,), t(8), t(8)), "layernorm rows=12,channels=8"),
    "layer_norm, bare": (lambda t: F.layer_norm(t(2, 6, 8), (8,), eps=1e-6), "layernorm rows=12,channels=8,affine=0,eps=1e-06"),
    "silu": (lambda t: F.silu(t(2, 8, 6, 5)), "elementwise op=silu,hw=60,channels=8"),
    "relu, in place": (lambda t: F.relu(t(2, 6, 8), inplace=True), "elementwise op=relu,hw=12,channels=8"),
    "add": (lambda t: t(2, 6, 8) + t(2, 6, 8), "elementwise op=add,hw=12,channels=8"),
    "add, in place": (lambda t: t(2, 6, 8).add_(t(2, 6, 8)), "elementwise op=add,hw=12,channels=8"),
    "add, a number": (lambda t: t(2, 6, 8) + 1, "add: elementwise adds tensors of one shape only"),
    "cast": (lambda t: t(2, 6, 8).half(), "elementwise op=cast,hw=12,channels=8,to=fp16"),
    "no cast": (lambda t: t(2, 6, 8).double(), "_to_copy: a cast to torch.float64"),
    "mixed": (lambda t: t(2, 8) + t(2, 8).half(), "add: tensors of torch.float16 and torch.float32"),
    "to channels-last": (lambda t: t(2, 8, 6, 5).permute(0, 2, 3, 1).contiguous(), "elementwise op=nchw_to_nhwc,n=2,hw=30,channels=8"),
    "to channels-last memory": (lambda t: t(2, 8, 6, 5).contiguous(memory_format=torch.channels_last),
                                "elementwise op=nchw_to_nhwc,n=2,hw=30,channels=8"),
    "to channels-first": (lambda t: t(2, 6, 5, 8).permute(0, 3, 1, 2).contiguous(), "elementwise op=nhwc_to_nchw,n=2,hw=30,channels=8"),
    "concat": (lambda t: torch.cat([t(2, 8, 6, 5), t(2, 4, 6, 5)], 1), "resample op=concat,n=2,h=6,w=5,channels=8,skip_channels=4"),
    "concat of rows": (lambda t: torch.cat([t(2, 8), t(2, 4)], -1), "resample op=concat,n=2,h=1,w=1,channels=8,skip_channels=4"),
    "concat of three": (lambda t: torch.cat([t(2, 8)] * 3), "cat: resample puts two tensors together, not 3"),
    "nearest": (lambda t: F.interpolate(t(2, 8, 6, 5), scale_factor=2.0), "resample op=nearest_up2,n=2,h=6,w=5,channels=8"),
    "nearest, thrice": (lambda t: F.interpolate(t(2, 8, 6, 5), scale_factor=3.0), "upsample_nearest2d: resample doubles images"),
    "average": (lambda t: F.avg_pool2d(t(2, 8, 6, 4), 2), "resample op=average_down2,n=2,h=6,w=4,channels=8"),
    "embedding": (lambda t: F.embedding(torch.zeros(3, dtype=torch.long, device=t.device), t(9, 8)), "embedding: no op of the catalogue"),
}  # fmt: skip


def found(capture):
    """In words: problems, then what is none."""
    return [f"{group.what.op} {group.what.text}" for group in capture.problems()] + [": ".join(group.what) for group in capture.unmapped()]


def maker(device, grad=False):
    def make(*shape):
        return torch.randn(*shape, device=device, requires_grad=grad)

    make.device = device
    return make


@needs_torch
@pytest.mark.parametrize("mode", ["no_grad", "inference_mode", "enable_grad"])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_its_problem_on_any_device(name, mode):
    call, wanted = CALLS[name]
    for device in ["cpu", "meta"] + ["cuda"] * (torch.cuda.is_available() and name != "attention further down"):
        with getattr(torch, mode)(), noisefloor.capture() as capture:
            call(maker(device))
        said = found(capture)
        assert wanted in said and len(said) <= 3, (device, said)  # beside it what makes its arguments
        assert all(share is None or 0 <= share <= 1 for share in capture.coverage().values())


@needs_torch
@pytest.mark.parametrize("grad", [False, True])
def test_several_calls_are_one_problem(grad):
    def geglu(t):
        value, gate = t(2, 6, 16).chunk(2, dim=-1)
        return value * F.gelu(gate)

    def halves_exchanged(t):
        gate, value = t(2, 6, 16).chunk(2, dim=-1)
        return value * F.gelu(gate)

    def waves(t):
        x = t(3, 1) * t(1, 8)
        y = torch.cat([x.sin(), x.cos()], dim=-1)
        return torch.cat([y[:, 8:], y[:, :8]], dim=-1)

    for device in ("cpu", "meta"):
        with noisefloor.capture() as capture:
            geglu(maker(device, grad))
        assert found(capture) == ["elementwise op=geglu,hw=12,channels=8"] and capture.coverage()["calls"] == 1
        with noisefloor.capture() as capture:
            halves_exchanged(maker(device, grad))
        assert [group.what[0] for group in capture.unmapped()] == ["gelu", "mul"]
        with noisefloor.capture() as capture:
            waves(maker(device, grad))
        assert found(capture) == ["timestep_embedding batch=3,channels=16", "mul: elementwise has no product"]


def gated(x, w1, w2):
    """The second tensor may lie where the first one was."""
    h = x @ w1
    gate = F.gelu(h[:, 8:])
    del h
    return (x @ w2)[:, :8] * gate


def waves_of_two(t, f1, f2):
    return torch.cat([torch.sin(t * f1), torch.cos(t * f2)], 1)


def changed(which):
    def call(x, w1, w2):
        h = x @ w1
        gate = F.gelu(h[:, 8:])
        (h if which == "h" else gate).mul_(2)
        return h[:, :8] * gate

    return call


def changed_waves(t, f1, f2):
    x = t * f1
    sine = x.sin()
    return torch.cat([sine, x.add_(1).cos()], 1)


@needs_torch
@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
@pytest.mark.parametrize("program, shapes, wrong", [(gated, ((4, 8), (8, 16), (8, 16)), "op=geglu"), (waves_of_two, ((4, 1), (1, 8), (1, 8)), "timestep_embedding"),
                                                    (changed("h"), ((4, 8), (8, 16), (8, 16)), "op=geglu"), (changed("gate"), ((4, 8), (8, 16), (8, 16)), "op=geglu"),
                                                    (changed_waves, ((4, 1), (1, 8), (1, 8)), "timestep_embedding")])  # fmt: skip
def test_other_numbers_are_no_problem_together(program, shapes, wrong, mode):
    with getattr(torch, mode)():
        inputs = [torch.randn(shape) for shape in shapes]
        for _ in range(30):
            with noisefloor.capture() as capture:
                program(*inputs)
            assert not [one for one in found(capture) if wrong in one], found(capture)


def block():
    torch.manual_seed(3)
    conv, norm, linear = torch.nn.Conv2d(4, 8, 3, padding=1), torch.nn.GroupNorm(2, 8), torch.nn.Linear(8, 24)

    def forward(x):
        h = F.silu(norm(conv(x)))
        q, k, v = linear(h.flatten(2).transpose(1, 2)).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        return h.add_(F.scaled_dot_product_attention(q, k, v).transpose(2, 3).reshape(h.shape))

    return forward, [*conv.parameters(), *norm.parameters(), *linear.parameters()]


@needs_torch
def test_what_is_computed_stays_the_same():
    (forward, parameters), x = block(), torch.randn(2, 4, 6, 5)
    wanted = forward(x)
    gradients = torch.autograd.grad(wanted.square().sum(), parameters)
    with noisefloor.capture() as capture:
        y = forward(x)
    forwards = found(capture)
    assert torch.equal(y, wanted) and all(map(torch.equal, torch.autograd.grad(y.square().sum(), parameters), gradients))
    y = forward(x)
    with noisefloor.capture() as backward:  # under any dispatch mode PyTorch rounds some gradients otherwise
        found_gradients = torch.autograd.grad(y.square().sum(), parameters)
    assert all(torch.allclose(one, other, atol=1e-4) for one, other in zip(found_gradients, gradients))
    assert {"convolution_backward", "native_group_norm_backward"} < {group.what[0] for group in backward.unmapped()}
    for mode in (torch.no_grad, torch.inference_mode):
        with mode(), noisefloor.capture() as capture:
            assert torch.allclose(forward(x), wanted)
        assert found(capture) == forwards
    with torch.no_grad(), noisefloor.capture() as capture:
        assert torch.allclose(torch.compile(forward, backend="aot_eager")(x), wanted)
    assert found(capture) == forwards
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), noisefloor.capture() as capture:
        forward(x)
    types = {group.what.op: group.what.dtype for group in capture.problems()}
    assert (types["conv2d"], types["gemm"], types["attention"]) == ("bf16",) * 3


@needs_torch
def test_an_error_passes_and_ends_the_capture():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), noisefloor.capture() as capture:
        torch.ones(2, 8) @ torch.ones(4, 8)
    torch.ones(2) + torch.ones(2)
    assert not capture.calls and "nothing was called" in str(capture)
    with pytest.raises(RuntimeError, match="entered once"), capture:
        pass


@needs_torch
def test_a_form_that_it_cannot_read_is_named_and_computed(monkeypatch):
    monkeypatch.setitem(_mapping.RULES, "silu", lambda *_: 1 // 0)
    with noisefloor.capture() as capture:
        y = F.silu(torch.ones(2, 8))
    assert torch.equal(y, F.silu(torch.ones(2, 8)))
    assert found(capture) == ["silu: noisefloor cannot read this call (ZeroDivisionError: integer division or modulo by zero)"]


@needs_torch
def test_fake_tensors_have_problems_and_no_time():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode(), noisefloor.capture() as capture:
        F.linear(torch.empty(6, 8, device="cuda"), torch.empty(4, 8, device="cuda"))
    assert found(capture) == ["gemm m=6,n=4,k=8,bias=0"] and capture.coverage()["seconds"] is None


@needs_torch
def test_what_only_writes_or_moves_to_a_device_is_no_call():
    with noisefloor.capture() as capture:
        x = torch.randn(4, 8)
        torch.nn.init.normal_(x), torch.zeros_like(x), x.new_zeros(3), x.fill_(2), x.to("meta"), x[:, 2:].reshape(-1), torch.ones(0, 3) + 1
    assert [call.name for call in capture.calls] == ["clone"]


@needs_torch
def test_shares_are_of_calls_and_operations():
    with torch.no_grad(), noisefloor.capture() as capture:
        torch.nn.Linear(8, 4)(torch.ones(6, 8)).tanh()
        torch.bmm(torch.ones(2, 3, 8), torch.ones(2, 8, 4))
    linear, tanh, bmm = capture.calls[-3:]  # before them: what makes the layer's weights
    assert (linear.flops, tanh.flops, bmm.flops) == (2 * 6 * 4 * 8, 24, 2 * 2 * 3 * 8 * 4)
    capture.calls = capture.calls[-3:]
    assert capture.coverage() == {"calls": 1 / 3, "flops": 384 / (384 + 24 + 384), "seconds": None}
    assert "mapped: 33.33 % of 3 calls, 48.48 % of 792 FLOPs\n" in str(capture) and "48.48  bmm: gemm has no batch of matrices" in str(capture)


@needs_torch
def test_time_is_that_between_events(monkeypatch):
    clock = iter(range(0, 1000, 10))
    marks = []

    def mark(tensors):
        marks.append(SimpleNamespace(at=next(clock)))
        marks[-1].elapsed_time = lambda end, begin=marks[-1]: end.at - begin.at
        return marks[-1]

    monkeypatch.setattr(_capture, "mark", mark)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: marks.append("synchronised"))
    with noisefloor.capture() as capture:
        x = torch.ones(4, 8)
        assert "synchronised" not in marks
        F.silu(x), x.tanh(), x.tanh()
    assert [call.seconds for call in capture.calls] == [0.01] * 3 and marks[-1] == "synchronised"
    assert capture.coverage()["seconds"] == pytest.approx(1 / 3) and "33.33 % of 0.03 s on the GPU" in str(capture)


@needs_torch
def test_events_are_of_the_tensors_gpu_outside_of_graphs(monkeypatch):
    on = [SimpleNamespace(device=torch.device("cpu")), SimpleNamespace(device=torch.device("cuda", 1))]
    recorded = []
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: SimpleNamespace(record=recorded.append))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    for capturing, streams in ((True, []), (False, ["stream of cuda:1"])):
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda capturing=capturing: capturing)
        assert (_capture.mark(on) is None) == capturing and recorded == streams
    assert _capture.mark(on[:1]) is None


@pytest.mark.skipif(torch is None or not torch.cuda.is_available(), reason="PyTorch sees no GPU")
def test_a_gpu_has_times_and_the_problems_of_meta():
    torch.nn.Linear(8, 8, device="cuda")(torch.ones(8, 8, device="cuda"))  # the library's own start
    said = []
    for device in ("meta", "cuda"):
        layers = [torch.nn.Conv2d(4, 32, 3, padding=1), torch.nn.GroupNorm(8, 32), torch.nn.SiLU(), torch.nn.Flatten(2), torch.nn.Linear(64, 64)]
        network = torch.nn.Sequential(*layers).to(device)
        x = torch.ones(2, 4, 8, 8, device=device)
        with torch.no_grad(), noisefloor.capture() as capture:
            q = network(x).unflatten(1, (4, 8))
            F.scaled_dot_product_attention(q, q, q)
        said.append(found(capture))
    assert said[0] == said[1] and all(call.seconds > 0 for call in capture.calls) and capture.coverage()["seconds"] == 1


@needs_torch
@needs_program
def test_the_files_are_swept(tmp_path):
    folder, forward = tmp_path / "problems", block()[0]
    with torch.no_grad(), noisefloor.capture() as capture:
        forward(torch.ones(2, 4, 6, 5)), forward(torch.ones(2, 4, 6, 5))
        F.silu(torch.ones(2, 8, dtype=torch.half))
    assert capture.write(folder, "mine") == "fp32"
    wanted = {(group.what.op, group.what.text): f"mine:{group.count}" for group in capture.problems()}
    assert listed(folder) == wanted and wanted["gemm", "m=60,n=24,k=8"] == "mine:2"
    assert (folder / "elementwise.csv").read_text() == ("network,op,hw,channels,dtype,count\nmine,silu,60,8,,2\nmine,add,60,8,,2\nmine,silu,2,8,fp16,1\n")
    result = program("sweep", "--device", "host", "--problems", folder, "--networks", "mine", "--dtypes", "fp32", "--ops", "groupnorm", "--out",
                     tmp_path / "out", "--benchmark_min_time=0.001")  # fmt: skip
    assert result.returncode == 0, result.stderr
    rows = list(csv.DictReader((tmp_path / "out" / "sweep.csv").open(newline="")))
    assert {(row["problem"], row["status"]) for row in rows if row["variant"] == "host"} == {("n=2,hw=30,channels=8,groups=2", "ok")}


@needs_torch
def test_other_files_are_left_alone(tmp_path):
    with noisefloor.capture() as capture:
        F.silu(torch.ones(2, 8))
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="is not empty; problem files go into a new folder"):
        capture.write(tmp_path)
    with pytest.raises(NotADirectoryError, match="notes.txt: is no folder"):
        capture.write(tmp_path / "notes.txt")
    with pytest.raises(ValueError, match="network 'a;b': a name is of letters"):
        capture.write(tmp_path / "new", "a;b")
    with noisefloor.capture() as nothing:
        torch.ones(2).tanh()
    with pytest.raises(ValueError, match="nothing that was captured is a problem"):
        nothing.write(tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"] and (tmp_path / "notes.txt").read_text() == "mine"


SCRIPT = """
import sys, torch
torch.nn.functional.silu(torch.ones(2, 8))
print(__name__, sys.argv[1:])
if "raise" in sys.argv: raise ValueError("of the script")
if "exit" in sys.argv: sys.exit(3)
"""


@needs_torch
@pytest.mark.parametrize("through, ending, code", [("python", "none", 0), *(pytest.param("program", *one, marks=needs_program)
                                                                             for one in (("raise", 1), ("exit", 3)))])  # fmt: skip
def test_a_script_runs_as_it_would(through, ending, code, tmp_path):
    (tmp_path / "pipe.py").write_text(SCRIPT)
    begin = [sys.executable, "-m", "noisefloor", "capture"] if through == "python" else [PROGRAM, "capture"]
    command = [*begin, "--out", "problems", "--", sys.executable, "pipe.py", "--out", ending]
    keywords = {"cwd": tmp_path, "capture_output": True, "text": True, "env": os.environ | {"PYTHONPATH": built.FOLDER}}
    result = subprocess.run(command, **keywords)
    assert (result.returncode, result.stdout) == (code, f"__main__ ['--out', '{ending}']\n"), result.stderr
    assert "mapped: 100.00 % of 1 calls" in result.stderr and ("ValueError: of the script" in result.stderr) == (ending == "raise")
    if code:  # what half a script called is not what it calls
        assert f"problems: not written, as the script ended with {code}" in result.stderr and "noisefloor sweep" not in result.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["pipe.py"]
        return
    assert [path.name for path in (tmp_path / "problems").iterdir()] == ["elementwise.csv"]
    assert (tmp_path / "problems/elementwise.csv").read_text() == "network,op,hw,channels,count\npipe,silu,2,8,1\n"
    assert "noisefloor sweep --problems problems --networks pipe --dtypes fp32" in result.stderr
    again = subprocess.run(command, **keywords)
    assert again.returncode == 2 and again.stdout == "" and "problems: is not empty" in again.stderr
    beneath = subprocess.run([*begin, "--out", "pipe.py/problems", "--", sys.executable, "pipe.py"], **keywords)
    assert beneath.returncode == 2 and beneath.stdout == "" and "pipe.py/problems: cannot be written: Not a directory" in beneath.stderr


@needs_program
@pytest.mark.parametrize("words, interpreter", [(["python_pipe.py"], "python3"), (["./python_pipe.py", "x"], "python3"),
                                                (["python", "python_pipe.py"], "python"), (["bin/python3.12", "python_pipe.py"], "bin/python3.12")])
def test_a_script_whose_name_begins_with_python_is_none(words, interpreter, tmp_path):
    for name in ("bin/python", "bin/python3", "bin/python3.12", "python_pipe.py"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text('#!/bin/sh\necho "$0" "$@"\n')
        file.chmod(0o755)
    result = program("capture", "--", *words, cwd=tmp_path, env=os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"})
    ran, said = result.stdout.split(" ", 1)
    assert Path(ran).name == Path(interpreter).name and said.split() == ["-m", "noisefloor", "capture", "--", *words[interpreter == words[0] :]]


@needs_torch
def test_a_write_that_fails_leaves_no_files(tmp_path, monkeypatch):
    with noisefloor.capture() as capture:
        F.silu(torch.ones(2, 8)), F.linear(torch.ones(2, 8), torch.ones(4, 8))

    def full(writer, rows):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(csv.DictWriter, "writerows", full)
    with pytest.raises(OSError, match="No space left"):
        capture.write(tmp_path / "new")
    assert not list((tmp_path / "new").iterdir())


@needs_torch
@pytest.mark.parametrize("network", captured.NETWORKS)
def test_diffusers_unets_are_as_recorded(network):
    pytest.importorskip("diffusers", reason="diffusers is not installed")
    capture = captured.capture(network)
    assert {(group.what.op, group.what.text): group.count for group in capture.problems()} == captured.table_of(network)
    assert {group.what.dtype for group in capture.problems()} == {"fp32"} and capture.coverage()["flops"] > 0.999


@needs_torch
def test_a_small_unet_computes_what_it_did_and_has_the_problems_of_meta():
    diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed")
    torch.manual_seed(4)
    network = diffusers.UNet2DConditionModel(block_out_channels=(16, 32), down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), norm_num_groups=8,
                                             up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), layers_per_block=1, attention_head_dim=2,
                                             cross_attention_dim=24).eval()  # fmt: skip
    inputs = torch.randn(2, 4, 8, 12), torch.tensor([17, 801]), torch.randn(2, 5, 24)
    with torch.no_grad():
        wanted = network(*inputs).sample
        with noisefloor.capture() as capture:
            assert torch.equal(network(*inputs).sample, wanted)
        with noisefloor.capture() as meta:
            network.to("meta")(*(tensor.to("meta") for tensor in inputs))
    assert {group.what: group.count for group in capture.problems()} == {group.what: group.count for group in meta.problems()}


@needs_torch
def test_of_a_dit_it_names_what_it_cannot_map():
    diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed")
    with torch.device("meta"), torch.no_grad():
        network = diffusers.DiTTransformer2DModel(num_attention_heads=4, attention_head_dim=16, num_layers=2, sample_size=16, norm_num_groups=8).eval()
        labels = torch.zeros(2, dtype=torch.long)
        with noisefloor.capture() as capture:
            network(torch.empty(2, 4, 16, 16), labels, labels)
    unmapped = {group.what: group.count for group in capture.unmapped()}
    for name, reason, count in (("convolution", "conv2d has odd kernels; it is 2-D, kernel 2x2, stride 2, pad 0", 1), ("mul", "elementwise has no product", 18),
                                ("gelu", "elementwise has gelu in geglu only", 2), ("add", "elementwise adds tensors of one shape only", 11),
                                ("embedding", "no op of the catalogue", 3)):  # fmt: skip
        assert unmapped[name, reason] == count
    assert {group.what.op for group in capture.problems()} == {"timestep_embedding", "gemm", "elementwise", "layernorm", "attention"}
    assert 0.98 < capture.coverage()["flops"] < 0.99
