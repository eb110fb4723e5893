"""scripts/gpus, and what the scripts and CMake make of its answer: an old GPU does not break another."""

import shutil

import pytest

from tests.support.machine import ROOT, Machine

H100, GTX, GB10 = "9 0 NVIDIA H100 80GB HBM3", "6 1 NVIDIA GeForce GTX 1080", "12 1 NVIDIA GB10"
KNOWN = "75;80;86;89;90;100;120"  # to nvcc


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


# What the driver says; the GPUs that there are, and a word of what is said of the rest.
SAID = [
    (H100, ["9.0 NVIDIA H100 80GB HBM3"], ""),
    (f"{H100};8 6 NVIDIA A10", ["9.0 NVIDIA H100 80GB HBM3", "8.6 NVIDIA A10"], ""),
    ("10 3 NVIDIA B300", ["10.3 NVIDIA B300"], ""),
    (f"{H100};{GTX}", ["9.0 NVIDIA H100 80GB HBM3"], "GTX 1080 is left out"),
    (GTX, [], "7.5 or newer"),
    ("0", [], "finds none"),
    ("100", [], "finds none"),
    ("803", [], "803 of cuInit (words of the driver)"),
    ("34", [], "stub"),
]


@pytest.mark.parametrize("said, gpus, word", SAID)
def test_what_the_driver_says(machine, said, gpus, word):
    machine.driver(said)
    result = machine.run(ROOT / "scripts" / "gpus")
    assert result.stdout.splitlines() == gpus and result.returncode == (0 if gpus else 1), result.stderr
    assert word in result.stderr and (word or not result.stderr)
    result = machine.bash('choose_preset; echo "$preset"', CUDACXX=str(machine.program("nvcc", "#!/bin/sh\n")))
    assert result.stdout == ("cuda\n" if gpus else "host\n") and len(result.stderr.splitlines()) == 1, result.stderr
    assert (gpus[0].split(" ", 1)[1] if gpus else word) in result.stderr


def test_gpus_of_a_kind_are_counted(machine):
    machine.driver("9 0 NVIDIA H200;9 0 NVIDIA H200")
    assert "2 x NVIDIA H200" in machine.bash("choose_preset", CUDACXX=str(machine.program("nvcc", "#!/bin/sh\n"))).stderr


def find_architectures(machine, tmp_path, known=KNOWN, **found):
    script = tmp_path / "find.cmake"
    script.write_text(f'cmake_minimum_required(VERSION 3.24)\ninclude("{ROOT}/scripts/cmake/NoisefloorMachine.cmake")\nset(PROJECT_SOURCE_DIR "{ROOT}")\nset(CMAKE_CUDA_COMPILER_VERSION 13.0)\n'
                      f'noisefloor_find_architectures("{known}" chosen)\nmessage(STATUS "for ${{chosen}}")\n')
    return machine.run("cmake", *(f"-DNOISEFLOOR_FOUND_CUDA_ARCHITECTURES{name}={value}" for name, value in found.items()), "-P", script)


# What the driver says; what an earlier configuration found, and of which GPU; what is compiled for, and words that are said.
CHOICES = [
    (f"{H100};{H100}", {}, "90a", []),
    (f"{H100};8 6 NVIDIA A10", {}, "90a;86", []),
    (f"{H100};{GTX}", {}, "90a", ["GTX 1080 is left out"]),
    (f"{GB10};{H100}", {}, "90a", ["GB10 is left out", "newer CUDA toolkit"]),
    (H100, {"": "80", "_OF": "NVIDIA A100"}, "90a", ["80 (NVIDIA A100)", "anew"]),  # another machine
    (H100, {"": "90a", "_OF": "NVIDIA H200"}, "90a", []),
    ("100", {}, "90a", ["no GPU here"]),
    ("100", {"": "80", "_OF": "NVIDIA A100"}, "80", ["no GPU here", "NVIDIA A100"]),  # a login node
    (GTX, {}, None, ["7.5 or newer", "NOISEFLOOR_CUDA_ARCHITECTURES"]),
    (GB10, {}, None, ["GB10", "nvcc knows 75"]),
]


@pytest.mark.skipif(not shutil.which("cmake"), reason="needs cmake")
@pytest.mark.parametrize("said, found, chosen, words", CHOICES)
def test_cmake_compiles_for_it(machine, tmp_path, said, found, chosen, words):
    machine.driver(said)
    result = find_architectures(machine, tmp_path, **found)
    output = " ".join((result.stdout + result.stderr).split())
    assert (f"for {chosen}" in result.stdout.splitlines()[-1] if chosen else result.returncode != 0), output
    assert all(word in output for word in words) and (words or len(result.stdout.splitlines()) == 1), output
