"""scripts/gpus, and what the scripts and CMake make of its answer: only what is a GPU is taken for one, and an old one does not break another."""

import shutil

import pytest

from tests.support.machine import ROOT, Machine

H100, GTX = "9.0, NVIDIA H100 80GB HBM3", "6.1, NVIDIA GeForce GTX 1080"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 575.57"
FAILED = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
KNOWN = "75;80;86;89;90;100;120"  # to nvcc


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


# What nvidia-smi says, its exit code; the GPUs that there are, and a word of what is said of the rest.
SAID = [
    (H100, 0, ["9.0 NVIDIA H100 80GB HBM3"], ""),
    (f"{H100}\n8.6, NVIDIA A10", 0, ["9.0 NVIDIA H100 80GB HBM3", "8.6 NVIDIA A10"], ""),
    (f"{H100}\r\n8.6, NVIDIA A10\r", 0, ["9.0 NVIDIA H100 80GB HBM3", "8.6 NVIDIA A10"], ""),
    ("10.3, NVIDIA B300", 0, ["10.3 NVIDIA B300"], ""),
    (f"{H100}\n{GTX}", 0, ["9.0 NVIDIA H100 80GB HBM3"], "GTX 1080 is left out"),
    (GTX, 0, [], "7.5 or newer"),
    (MISMATCH, 18, [], "version mismatch"),
    (MISMATCH, 0, [], "is no GPU"),
    (f"{H100}\n{MISMATCH}", 0, [], "is no GPU"),
    (FAILED, 9, [], "has failed"),
    (FAILED, 0, [], "is no GPU"),
    ("No devices were found", 6, [], "No devices"),
    ("No devices were found", 0, [], "is no GPU"),
    ("", 0, [], "is no GPU"),
    ('Field "compute_cap" is not a valid field to query.', 2, [], "not a valid field"),
    ("9.0, ", 0, [], "is no GPU"),
]


@pytest.mark.parametrize("said, code, gpus, word", SAID)
def test_what_nvidia_smi_says(machine, said, code, gpus, word):
    machine.nvidia_smi(said, code)
    result = machine.run(ROOT / "scripts" / "gpus")
    assert result.stdout.splitlines() == gpus and result.returncode == (0 if gpus else 1), result.stderr
    assert word in result.stderr and (word or not result.stderr)


# DRIVER, the GPUs, a word.
ANSWERS = [
    ("9 0 8 0", ["9.0 GPU 0", "8.0 GPU 1"], ""),
    ("9 0 6 1", ["9.0 GPU 0"], "GPU 1 is left out"),
    ("100", [], "finds none"),
    ("803", [], "803 of cuInit (words of the driver)"),
    ("34", ["8.9 asked instead"], ""),  # the toolkit's stub, for linking
]


@pytest.mark.parametrize("answer, gpus, word", ANSWERS)
def test_what_the_driver_says(machine, answer, gpus, word):
    machine.nvidia_smi("8.9, asked instead")
    (machine.tools / "python3").unlink()
    machine.driver(answer)
    result = machine.run(ROOT / "scripts" / "gpus")
    assert result.stdout.splitlines() == gpus and result.returncode == (0 if gpus else 1), result.stderr
    assert word in result.stderr and (word or not result.stderr)


@pytest.mark.parametrize("said, code, gpus, word", SAID)
def test_scripts_choose_a_preset_by_it(machine, said, code, gpus, word):
    machine.nvidia_smi(said, code)
    nvcc = machine.program("nvcc", "#!/bin/sh\n")
    result = machine.bash('choose_preset; echo "$preset"', CUDACXX=str(nvcc))
    assert result.stdout == ("cuda\n" if gpus else "host\n"), result.stderr
    assert len(result.stderr.splitlines()) == 1, "said once"
    assert (gpus[0].split(" ", 1)[1] if gpus else word) in result.stderr


def test_gpus_of_a_kind_are_counted(machine):
    machine.nvidia_smi("9.0, NVIDIA H200\n9.0, NVIDIA H200")
    assert "2 x NVIDIA H200" in machine.bash("choose_preset", CUDACXX=str(machine.program("nvcc", "#!/bin/sh\n"))).stderr


def find_architectures(machine, tmp_path, known=KNOWN, **found):
    script = tmp_path / "find.cmake"
    script.write_text(f'cmake_minimum_required(VERSION 3.24)\ninclude("{ROOT}/scripts/cmake/NoisefloorMachine.cmake")\nset(PROJECT_SOURCE_DIR "{ROOT}")\nset(CMAKE_CUDA_COMPILER_VERSION 13.0)\n'
                      f'noisefloor_find_architectures("{known}" chosen)\nmessage(STATUS "for ${{chosen}}")\n')
    return machine.run("cmake", *(f"-DNOISEFLOOR_FOUND_CUDA_ARCHITECTURES{name}={value}" for name, value in found.items()), "-P", script)


# What nvidia-smi says; what an earlier configuration found, and of which GPU; what is compiled for, and words that are said.
CHOICES = [
    (f"{H100}\n{H100}", {}, "90a", []),
    (f"{H100}\n8.6, NVIDIA A10", {}, "90a;86", []),
    (f"{H100}\n{GTX}", {}, "90a", ["GTX 1080 is left out"]),
    (f"12.1, NVIDIA GB10\n{H100}", {}, "90a", ["GB10 is left out", "newer CUDA toolkit"]),
    (H100, {"": "80", "_OF": "NVIDIA A100"}, "90a", ["80 (NVIDIA A100)", "anew"]),  # another machine
    (H100, {"": "90a", "_OF": "NVIDIA H200"}, "90a", []),
    (MISMATCH, {}, "90a", ["no GPU here"]),
    ("No devices were found", {"": "80", "_OF": "NVIDIA A100"}, "80", ["no GPU here", "NVIDIA A100"]),  # a login node
    (GTX, {}, None, ["7.5 or newer", "NOISEFLOOR_CUDA_ARCHITECTURES"]),
    ("12.1, NVIDIA GB10", {}, None, ["GB10", "nvcc knows 75"]),
]


@pytest.mark.skipif(not shutil.which("cmake"), reason="needs cmake")
@pytest.mark.parametrize("said, found, chosen, words", CHOICES)
def test_cmake_compiles_for_it(machine, tmp_path, said, found, chosen, words):
    machine.nvidia_smi(said)
    result = find_architectures(machine, tmp_path, **found)
    output = " ".join((result.stdout + result.stderr).split())
    assert (f"for {chosen}" in result.stdout.splitlines()[-1] if chosen else result.returncode != 0), output
    assert all(word in output for word in words) and (words or len(result.stdout.splitlines()) == 1), output
