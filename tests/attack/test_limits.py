"""The program under limits of its process, and under settings of OpenMP that make no sense: it does what it is asked, or says in a sentence why not
(exit code 2). It never crashes, hangs or leaves the last word to a library."""

import os
import resource
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

import battery

WEIGHTS = Path(__file__).resolve().parents[2] / "bench" / "pipeline" / "weights" / "digits.safetensors"
OPENMP = {name for name in os.environ if name.startswith(("OMP_", "GOMP_"))}
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
CORES = len(os.sched_getaffinity(0))
USER = 40000 + os.getpid() % 20000  # of nobody else: the limit of processes counts a user's, and does not bind root

COMMANDS = {
    "--version": ["--version"],
    "devices": ["devices"],
    "list ops": ["list", "ops"],
    "run": ["run", "gemm", "--problem", "m=96,n=96,k=64", "--variant", "host", "--dtype", "fp32", "--device", "host", "--profile"],
    "sample": ["sample", "digits", "--weights", "digits.safetensors", "--count", "1", "--steps", "1", "--device", "host"],
}


@pytest.fixture(scope="module")
def place():
    """A folder that any user can read and write, with the program, weights and a picture."""
    folder = Path(tempfile.mkdtemp(prefix="noisefloor-limits-"))
    shutil.copy(battery.PROGRAM, folder / "program")
    shutil.copy(WEIGHTS, folder)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o777)
    assert start(folder, *COMMANDS["sample"], "--out", "whole.png").returncode == 0
    yield folder
    shutil.rmtree(folder)


def start(folder, *arguments, limits=(), user=None, **variables):
    def prepare():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if user is not None:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
        for name, value in limits:
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    environment = {name: value for name, value in os.environ.items() if name not in OPENMP}
    return subprocess.run([folder / "program", *arguments], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=battery.MOST_SECONDS, preexec_fn=prepare, env={**environment, "XDG_CACHE_HOME": str(folder), **variables})  # fmt: skip


def tried(folder, sentence, limits=(), user=None, commands=tuple(COMMANDS), **variables):
    """What each command says on stderr. Where it could not do what was asked, that names the limit: `sentence` is in it."""
    said = {}
    for name in commands:
        arguments = COMMANDS[name]
        picture = folder / "out.png"
        picture.unlink(missing_ok=True)
        more = ["--out", picture] if name == "sample" else []
        result = start(folder, *arguments, *more, limits=limits, user=user, **variables)
        shown = f"{name}, {limits}, {variables}: {result.returncode}\n{result.stdout}\n{result.stderr}"
        assert result.returncode in (0, 2), shown
        assert not battery.LIBRARY.search(result.stderr), shown
        if result.returncode == 2:
            assert sentence in result.stderr.rstrip("\n").splitlines()[-1], shown
            assert not picture.exists(), shown
        elif name == "sample":
            assert picture.read_bytes() == (folder / "whole.png").read_bytes(), shown
        else:
            assert {"run": "launched", "list ops": "gemm"}.get(name, "noisefloor") in result.stdout, shown
        said[name] = (result.returncode, result.stderr)
    return said


def all_done(said):
    return all(code == 0 for code, _ in said.values())


NONSENSE = [
    "OMP_NUM_THREADS=100000", "OMP_NUM_THREADS=2,100000", "OMP_NUM_THREADS=100000;OMP_DYNAMIC=true", "OMP_NUM_THREADS=100000;OMP_PROC_BIND=true",
    "OMP_NUM_THREADS=99999999999999999999", "OMP_NUM_THREADS=abc", "OMP_NUM_THREADS=0", "OMP_NUM_THREADS=-1", "OMP_NUM_THREADS=", "OMP_THREAD_LIMIT=0",
    "OMP_THREAD_LIMIT=1", "OMP_MAX_ACTIVE_LEVELS=0", "OMP_STACKSIZE=100G", "OMP_STACKSIZE=100000000000G", "OMP_STACKSIZE= 16 k ", "OMP_STACKSIZE=1B",
    "GOMP_STACKSIZE=64", "OMP_STACKSIZE=lots", "OMP_PLACES=nonsense", "OMP_PLACES={99999}", "GOMP_CPU_AFFINITY=77777", "OMP_PROC_BIND=xyz",
    "OMP_WAIT_POLICY=xyz", "GOMP_SPINCOUNT=xyz", "GOMP_SPINCOUNT=infinity", "OMP_SCHEDULE=xyz,-1",
]  # fmt: skip
RESTARTS = ("OMP_NUM_THREADS=100000", "OMP_STACKSIZE=100G", "OMP_PLACES=nonsense")
# Beside the program's file, which a build of kernels makes large: below the first the system does not start it.
BESIDE = os.path.getsize(battery.PROGRAM) if os.path.isfile(battery.PROGRAM) else 0
# Words of what is said, limits, variables, and whether all commands must do what they are asked.
LIMITED = [
    *(("OMP", [], variables, True) for variables in NONSENSE),  # it goes on with the threads that make sense
    *(("TMPDIR", [], f"TMPDIR={folder}", True) for folder in ("/nowhere", "/dev/null", "")),
    *(("open files", [("NOFILE", files)], "", False) for files in (16, 8, 6, 5, 4)),
    *(("emory", [(limit, size * MIB + BESIDE)], "", False) for limit in ("AS", "DATA") for size in (20, 28, 32, 48, 96, 192)),
    ("emory", [("AS", 64 * MIB + BESIDE)], "OMP_NUM_THREADS=100000", False),
    ("emory", [("AS", 256 * MIB + BESIDE)], "OMP_STACKSIZE=200M", False),
]


@pytest.mark.parametrize("sentence, limits, variables, done", LIMITED)
def test_limits_and_settings(place, sentence, limits, variables, done):
    # The others' threads are the same; a restart with fewer must come before they open their outputs.
    commands = ("run",) if sentence == "OMP" and variables not in RESTARTS else COMMANDS
    said = tried(place, sentence, limits, commands=commands, **dict(one.split("=", 1) for one in filter(None, variables.split(";"))))
    assert not done or all_done(said)


def test_fewer_threads_are_said(place):
    many = tried(place, "", OMP_NUM_THREADS="100000")
    for name in ("run", "sample"):
        assert "OMP_NUM_THREADS" in many[name][1] and "processor" in many[name][1]
    if CORES > 1:
        small = tried(place, "", OMP_STACKSIZE="16K")
        for name in ("run", "sample"):
            assert "OMP_STACKSIZE" in small[name][1]
    asked = tried(place, "", OMP_NUM_THREADS="1")
    for name in ("run", "sample"):
        assert "thread" not in asked[name][1], "who asks for one thread gets it without a word"


@pytest.mark.parametrize("more", range(4), ids=lambda more: f"{more} more")
def test_no_more_threads(place, more):
    """The user runs this program alone, and may have so many more threads or processes beside it."""
    root = os.geteuid() == 0
    said = tried(place, "ulimit -u", [("NPROC", 1 + more if root else 1)], USER if root else None)
    assert all_done(said), "it needs no other thread"
    if CORES > 1 + more:
        assert "ulimit -u" in said["run"][1] and "ulimit -u" in said["sample"][1]


def test_timed_with_fewer_threads(place):
    """Ceilings, and threads each on a core of its own. A busy machine makes the row `throttled` (exit code 2)."""
    root = os.geteuid() == 0
    for threads, limits in {"2,100000": [], "64": [("NPROC", 1)]}.items():
        result = start(place, *COMMANDS["run"][:-1], limits=limits, user=USER if root and limits else None, OMP_NUM_THREADS=threads)
        assert result.returncode in (0, 2), result.stderr
        assert " ok" in result.stdout or "throttled" in result.stdout, f"{result.stdout}\n{result.stderr}"


@pytest.mark.parametrize("size", [64 * KIB, 256 * KIB, MIB - KIB, MIB, 2 * MIB, 100 * GIB, resource.RLIM_INFINITY])
def test_stacks(place, size):
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    if hard != resource.RLIM_INFINITY and not 0 <= size <= hard:
        pytest.skip(f"the stack is limited to {hard} bytes here")
    said = tried(place, "ulimit -s", [("STACK", size)])
    assert all_done(said) == (size == resource.RLIM_INFINITY or size >= MIB)
    if size == MIB:  # what is called enough is enough for the host variants with the largest frames
        for op, problem in [("attention", "batch=1,heads=1,seq_q=64,seq_kv=80,dim=512"), ("gemm", "m=200,n=200,k=300"),
                            ("conv2d", "n=1,h=24,w=24,cin=96,cout=96,kernel=3"), ("layernorm", "rows=64,channels=1280")]:  # fmt: skip
            result = start(place, "run", op, "--problem", problem, "--variant", "host", "--dtype", "fp32", "--device", "host", "--profile",
                           limits=[("STACK", size)])  # fmt: skip
            assert result.returncode == 0 and "launched" in result.stdout, f"{op}: {result.returncode}\n{result.stdout}\n{result.stderr}"


def test_a_small_stack_that_may_be_raised_is_raised(place):
    def prepare():
        resource.setrlimit(resource.RLIMIT_STACK, (64 * KIB, resource.getrlimit(resource.RLIMIT_STACK)[1]))
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    if hard != resource.RLIM_INFINITY and hard < MIB:
        pytest.skip(f"the stack is limited to {hard} bytes here")
    result = subprocess.run([place / "program", *COMMANDS["sample"], "--out", place / "raised.png"], cwd=place, capture_output=True, text=True,
                            timeout=battery.MOST_SECONDS, preexec_fn=prepare)  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert (place / "raised.png").read_bytes() == (place / "whole.png").read_bytes()


def test_files_of_no_size(place):
    said = tried(place, "too large", [("FSIZE", 0)])
    assert said["sample"][0] == 2
