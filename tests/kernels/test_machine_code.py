"""What ptxas made of the kernels for sm_90a, read from the built library: wgmma stays asynchronous (ptxas' notes C7510 to C7520 of
"serialized" stop no build, and a build from a cache shows none), and nothing is loaded before the wait of programmatic dependent launch
but what EARLY_LOADS names. Kernels that never wait are not judged: only their launcher knows whether they start early."""

import bisect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ["NOISEFLOOR_BINARY"]).parents[1]
NVCC = dict(re.findall(r"^(\w+):\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)).get("CMAKE_CUDA_COMPILER")

# Weights and constants, which no kernel ahead writes; and all that the queries' pass of attention_backward reads, which starts behind a
# pass that has waited for it, and waits for that one in the end. (Of a product's tensor maps also those loads that stand behind "not the first
# tile", where the machine code tells nothing of the wait before.)
EARLY_LOADS = {
    "gemm_ptx_sm90a": {"UTMALDG"},  # B of the first stages
    "gemm_ptx_sm90a_gradient": {"UTMALDG"},  # likewise
    "convolution_ptx_sm90a": {"UTMALDG"},  # likewise
    "convolution_ptx_sm90a_halo": {"UTMALDG"},
    "attention_backward_ptx_sm90a": {"UTMALDG", "LDG"},
    "layer_kernel": {"UBLKCP"},  # timestep_embedding: the block's rows of weights
}

FUNCTION = re.compile(r"\s*Function : (\S+)$")
INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]{4,})\*/ +(@!?U?P\w+ +)?"
                         r"((?:BRA|BRX|JMP|JMX|CALL|RET|EXIT|ACQBULK|HGMMA|QGMMA|WARPGROUP\.DEPBAR|LD|LDG|LDGSTS|UBLKCP|UTMALDG)\b)([^;]*);")


def kernels(file):
    """Mangled name -> [(address, predicate, operation, operands)] of what decides here."""
    folders = [str(Path(NVCC).parent), *map(str, Path(sys.prefix).glob("lib/python3*/site-packages/nvidia/*/bin"))]
    path = os.pathsep.join([os.environ["PATH"], *folders])
    tool = shutil.which("cuobjdump", path=path)
    if not tool or not shutil.which("nvdisasm", path=path):
        message = "needs cuobjdump and nvdisasm: of a CUDA toolkit, or by scripts/setup"
        pytest.fail(message) if os.environ.get("NOISEFLOOR_REQUIRE_NVDISASM") else pytest.skip(message)
    found = {}
    with subprocess.Popen([tool, "-sass", "-arch", "sm_90a", file], env={**os.environ, "PATH": path}, stdout=subprocess.PIPE, text=True) as printed:
        for line in printed.stdout:  # in all, some 300 MB
            if function := FUNCTION.match(line):
                code = found.setdefault(function[1], [])
            elif instruction := INSTRUCTION.match(line):
                code.append((int(instruction[1], 16), *instruction.groups()[1:]))
    assert printed.returncode == 0
    return found


def serialized(code):
    """Every product is a group of its own, which is waited for before the next one."""
    products = [operands for _, _, operation, operands in code if operation in ("HGMMA", "QGMMA")]
    waits = [operands for _, _, operation, operands in code if operation == "WARPGROUP.DEPBAR"]
    return bool(products) and all("gsb0" in operands for operands in products) and all("gsb0, 0x0" in operands for operands in waits)


def early_loads(code):
    """What is reached from the entry without passing the wait."""
    if not any(operation == "ACQBULK" for _, _, operation, _ in code):
        return set()
    addresses = [address for address, *_ in code]
    found, seen, begins = set(), set(), [0]
    while begins:
        i = begins.pop()
        while i < len(code) and i not in seen:
            seen.add(i)
            _, predicate, operation, operands = code[i]
            if operation == "ACQBULK":
                break
            if operation in ("BRA", "CALL"):
                begins.append(bisect.bisect_left(addresses, int(operands.split("0x")[-1], 16)))
            elif operation.startswith(("LD", "U")):
                found.add(operation)
            assert operation not in ("BRX", "JMP", "JMX"), "a jump to where this test does not follow"
            if not predicate and (operation in ("EXIT", "RET") or operation == "BRA" and re.fullmatch(" *0x[0-9a-f]+ *", operands)):
                break
            i += 1
    return found


def plain(name):
    """gemm_ptx_sm90a of what noisefloor::gemm::gemm_ptx_sm90a<...> is mangled to."""
    rest = re.sub("^_ZN?", "", name)
    while length := re.match(r"\d+", rest):
        name, rest = rest[length.end():length.end() + int(length[0])], rest[length.end() + int(length[0]):]
    return name


pytestmark = pytest.mark.skipif(not (BUILD / "kernels/CMakeFiles/noisefloor_kernels_sm90a.dir").is_dir(),
                                reason="no kernel was built for sm_90a")


def test_products_stay_asynchronous_and_loads_behind_the_wait():
    built = kernels(BUILD / "kernels/libnoisefloor_kernels.a")
    early = {}
    for name, code in built.items():
        if loads := early_loads(code):
            early.setdefault(plain(name), set()).update(loads)
    assert [name for name, code in built.items() if serialized(code)] == []
    assert early == EARLY_LOADS


def test_what_ptxas_serializes_and_what_is_loaded_early_is_found(tmp_path):
    subprocess.run([NVCC, "-std=c++20", "-arch=sm_90a", "-cubin", f"-I{ROOT}", f"-I{BUILD}/kernels/generated", "-o", tmp_path / "cubin",
                    Path(__file__).with_name("machine_code.cu")], check=True, capture_output=True)
    fixture = kernels(tmp_path / "cubin")
    assert {name: (serialized(code), early_loads(code)) for name, code in fixture.items()} == {
        "asynchronous": (False, set()), "serialized_by_a_sum_in_use": (True, set()), "loads_ahead_in_a_branch": (False, {"LDG"})}
