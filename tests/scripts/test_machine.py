"""The scripts and CMake on machines that are set up otherwise: folders' names, links, variables, compilers, ccache, another CPU."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM, needs_program
from tests.support.machine import ROOT, Machine, copy_tree, git

ODD = "o'neil & (copy) $HOME"
EVERY = sorted(path for path in [*(ROOT / "scripts").iterdir(), *(ROOT / "tools").iterdir(), *ROOT.glob("t*/*/run"), ROOT / ".ci" / "run"]
               if path.is_file() and os.access(path, os.X_OK) and path.name not in ("noisefloor", "bundle_run.sh"))  # these need what is not here
needs_cmake = pytest.mark.skipif(not (shutil.which("cmake") and shutil.which("ninja")), reason="needs cmake and ninja")


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.mark.parametrize("name", [ODD, "-a;b"])
def test_scripts_find_their_tree(machine, tmp_path, name):
    """From anywhere, through links to them, and not the tree that CDPATH has."""
    tree, other = copy_tree(tmp_path / name, "scripts"), copy_tree(tmp_path / "other", "scripts")
    for folder in (tree, other):
        (folder / "build/host/bin").mkdir(parents=True)
        (folder / "build/host/bin/noisefloor").write_text('#!/bin/sh\necho "$0" "$@" "${GIT_DIR:-}"\n')
        (folder / "build/host/bin/noisefloor").chmod(0o755)
    (tmp_path / "link").symlink_to(tree / "scripts" / "noisefloor")
    (machine.tools / "nf").symlink_to(tmp_path / "link")
    settings = {"CDPATH": f"{other}:{tmp_path}", "GIT_DIR": str(other), "HOME": "/nonexistent"}
    for command, cwd in ((["scripts/noisefloor"], tree), (["bash", "noisefloor"], tree / "scripts"), ([tree / "scripts" / "noisefloor"], other), (["nf"], other)):
        for without in ((), ("HOME", "CDPATH")):
            result = machine.run(*command, "list", "a  b", cwd=cwd, without=without, **settings)
            assert result.stdout == f"{tree}/build/host/bin/noisefloor list a  b \n", result.stderr


@pytest.mark.parametrize("script", EVERY, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_script_starts_through_a_link(machine, script):
    (machine.tools / "link").symlink_to(script)
    result = machine.run("link", "--help", CDPATH="/", without=("HOME",))
    assert result.returncode == 0 and result.stdout.startswith("usage: ") and not result.stderr, result.stderr
    assert "set -euo" not in result.stdout and "import " not in result.stdout, "its header alone"


def test_jobs_are_the_cores(machine):
    for setting in ("1", "100000", "many", "-3"):
        result = machine.bash("nproc", OMP_NUM_THREADS=setting, OMP_THREAD_LIMIT=setting)
        assert int(result.stdout) == len(os.sched_getaffinity(0)), result.stderr


# What a build folder has of another machine or place, what is said then, and what stays.
@pytest.mark.parametrize("file, text, says, stays", [
    ("old.o", "", "", ["CMakeCache.txt", "CMakeFiles", "old.o"]),
    (".system", "another 9\n", "another 9", []),
    ("CMakeCache.txt", "A:STRING=b\nCMAKE_HOME_DIRECTORY:INTERNAL=/elsewhere\n", "another place", ["old.o"]),
])
def test_a_build_of_another_machine_or_place_is_made_anew(machine, tmp_path, file, text, says, stays):
    machine.program("cmake", "#!/bin/sh\necho cmake version 3.25.1\n")
    folder = tmp_path / "build/host"
    (folder / "CMakeFiles").mkdir(parents=True)
    (folder / "old.o").write_text("")
    (folder / "CMakeCache.txt").write_text(f"A:STRING=b\nCMAKE_HOME_DIRECTORY:INTERNAL={tmp_path}\n")
    for (name, contents), anew in ((("old.o", ""), ""), ((file, text), says)):
        (folder / name).write_text(contents)
        result = machine.bash("root=$1; build host", tmp_path)
        assert result.returncode == 0 and anew in result.stderr and ("anew" in result.stderr) == bool(anew), result.stderr
    assert [name for name in ("CMakeCache.txt", "CMakeFiles", "old.o") if (folder / name).exists()] == stays


def test_a_system_without_a_name(machine, tmp_path):
    machine.program("cmake", "#!/bin/sh\necho cmake version 3.25.1\n")
    machine.program("sed", f'#!/bin/sh\n[ "$3" != /etc/os-release ] || exit 2\nexec {shutil.which("sed")} "$@"\n')
    result = machine.bash("root=$1; build host", tmp_path)
    assert result.returncode == 0 and (tmp_path / "build/host/.system").read_text().strip() == os.uname().machine, result.stderr


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_a_checkout_has_lf(tmp_path):
    copy_tree(tmp_path / "from", "scripts")
    shutil.copy(ROOT / ".gitattributes", tmp_path / "from")
    as_windows = ("-c", "core.autocrlf=true")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"], ["clone", "-q", ".", tmp_path / "to"]):
        git(tmp_path / "from", *as_windows, *words)
    assert not [path for path in (tmp_path / "to/scripts").rglob("*") if path.is_file() and b"\r" in path.read_bytes()]


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return copy_tree(tmp_path_factory.mktemp("machine") / ODD)


def configure(machine, tree, *definitions, **environment):
    done = machine.run("cmake", "--preset", "host", "-DNOISEFLOOR_BUILD_TESTS=OFF", "-DNOISEFLOOR_PYTHON=OFF", *definitions, cwd=tree,
                       without=("CXX", "CXXFLAGS"), **environment)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@needs_cmake
def test_a_build_in_such_a_folder(machine, tree):
    code, said = configure(machine, tree, HOME="/nonexistent", CCACHE_DIR="/proc/nowhere", GIT_DIR=str(ROOT / ".git"))
    assert code == 0 and "compiles everything anew" in said, said
    assert ("without ccache" in said) == bool(shutil.which("ccache")), said
    built = machine.run("cmake", "--build", "build/host", "--target", "noisefloor_build_info", "noisefloor_cpu_check", cwd=tree)
    assert built.returncode == 0, built.stdout + built.stderr
    assert '"src-' in (tree / "build/host/bench/build_info.cpp").read_text()
    # The check of the CPU is for every CPU, whatever the rest is compiled for.
    commands = (tree / "build/host/compile_commands.json").read_text()
    [levels] = {tuple(re.findall("-march=([^ ]+)", line)) for line in commands.splitlines() if "cpu_check.cpp" in line and "-march" in line}
    assert levels == ("x86-64",)


@needs_cmake
def test_another_cpu_is_seen_and_said(machine, tree):
    assert configure(machine, tree)[0] == 0
    code, said = configure(machine, tree, "-DNOISEFLOOR_FOUND_HOST_ARCH=x86-64-v9", "-DNOISEFLOOR_FOUND_HOST_ARCH_OF=Another CPU")
    assert code == 0 and "x86-64-v9 (Another CPU)" in said, said
    assert "Another CPU" not in configure(machine, tree)[1]
    code, said = configure(machine, tree, "-DNOISEFLOOR_HOST_ARCH=x86-64-v2")  # what the user sets stays
    assert code == 0 and "x86-64" not in said and "-march=x86-64-v2" in (tree / "build/host/build.ninja").read_text(), said
    code, said = configure(machine, tree, "-DNOISEFLOOR_HOST_ARCH=pentium-9")
    assert code != 0 and "'pentium-9'" in said
    assert configure(machine, tree, "-DNOISEFLOOR_HOST_ARCH=")[0] == 0


def compiler(machine, version):
    """GCC that takes itself for another version."""
    major, minor = version.split(".")[:2]
    names = f"-U__GNUC__ -D__GNUC__={major} -U__GNUC_MINOR__ -D__GNUC_MINOR__={minor}"
    return machine.program("cxx", f'#!/bin/sh\n[ "$1" != --version ] || {{ echo "g++ {version}"; exit; }}\nexec g++ {names} "$@"\n')


@needs_cmake
def test_compilers_that_are_too_old_are_named(machine, tree):
    too_old = [(compiler(machine, "11.2.0"), "GNU 11.2.0")]
    if clang := shutil.which("clang++"):
        too_old.append((clang, "Clang"))
    for path, name in too_old:
        shutil.rmtree(tree / "build", ignore_errors=True)
        done = machine.run("cmake", "--preset", "host", cwd=tree, CXX=str(path))
        said = " ".join(done.stderr.split())
        assert done.returncode != 0 and "needs GCC 12 or newer" in said and name in said, said
    done = machine.run("cmake", "--preset", "host", "-DNOISEFLOOR_BUILD_TESTS=OFF", "-DNOISEFLOOR_PYTHON=OFF", cwd=tree, CXX="g++")
    assert done.returncode == 0, "the same folder, with another one"


@needs_cmake
def test_a_compiler_that_was_replaced_is_looked_at_again(machine, tree):
    shutil.rmtree(tree / "build", ignore_errors=True)
    command = ("cmake", "--preset", "host", "-DNOISEFLOOR_BUILD_TESTS=OFF", "-DNOISEFLOOR_PYTHON=OFF")
    version = subprocess.run(["g++", "-dumpfullversion"], capture_output=True, text=True).stdout.strip()
    path = str(compiler(machine, version))
    assert machine.run(*command, cwd=tree, CXX=path).returncode == 0
    assert "anew" not in machine.run(*command, cwd=tree).stdout.replace("compiles everything anew", "")
    compiler(machine, version.replace(".", ".9", 1))
    done = machine.run(*command, cwd=tree)
    assert done.returncode == 0 and "looking for compilers anew" in done.stdout, done.stdout + done.stderr
    Path(path).unlink()
    done = machine.run(*command, cwd=tree)
    assert done.returncode == 0 and "looking for compilers anew" in done.stdout, done.stdout + done.stderr


@needs_cmake
@pytest.mark.parametrize("name", ["a;b", "a[b]", 'a"b', "a|b", "a#b"])
def test_folders_that_cmake_cannot_build_in_are_named(machine, tmp_path, name):
    code, said = configure(machine, copy_tree(tmp_path / name, "scripts", "CMakeLists.txt", "CMakePresets.json"))
    assert code != 0 and "Rename or move it" in said, said


@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
def test_a_cpu_that_is_too_old_ends_the_start_before_anything_else(tmp_path):
    (tmp_path / "main.cpp").write_text('#include <cstdio>\nstruct Early { Early() { std::puts("ran"); } } early;\nint main() { std::puts("ran"); }\n')
    for level, code in ((0, 0), (9, 2)):
        subprocess.run(["g++", "-std=c++20", f"-I{ROOT}", f"-DNOISEFLOOR_HOST_LEVEL={level}", tmp_path / "main.cpp", ROOT / "bench/platform/cpu_check.cpp",
                        "-o", tmp_path / "program"], check=True)
        done = subprocess.run([tmp_path / "program"], capture_output=True, text=True)
        assert done.returncode == code and ("ran" in done.stdout) == (code == 0) and ("build is for CPUs of level" in done.stderr) == (code == 2)


@needs_program
def test_the_programs_have_that_check():
    programs = [Path(PROGRAM), Path(PROGRAM).with_name("host_tests"), *Path(PROGRAM).parents[1].glob("python/noisefloor/_core*.so")]
    for program in filter(Path.is_file, programs):
        assert b"this build is for CPUs of level" in program.read_bytes(), program
