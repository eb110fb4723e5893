"""scripts/ab, in a small repository with stand-ins for CMake and the program."""

import os
import shutil
import signal
import subprocess

import pytest

from tests.support.machine import Machine, copy_tree, executable, git, held

CMAKE = """#!/usr/bin/env bash
case "$1" in
  --version) echo "cmake version 3.25.1" ;;
  --preset) [ ! -f broken ] || exit 1 ;;
  --build) mkdir -p "$2/bin"; printf '#!/bin/sh\\necho "$0" "$@"\\nexit %s\\n' "${CODE:-0}" >"$2/bin/noisefloor"; chmod +x "$2/bin/noisefloor" ;;
esac
"""


class Repository(Machine):
    def __init__(self, folder):
        super().__init__(folder)
        self.root = folder / "clone"
        copy_tree(self.root, "scripts")
        executable(self.root / "scripts" / "setup", "#!/bin/sh\n")
        self.program("cmake", CMAKE)
        (self.root / ".gitignore").write_text("build/\n")
        self.git("init", "--quiet", "--initial-branch", "main")
        self.commit("one")

    def git(self, *arguments):
        return git(self.root, *arguments)

    def commit(self, message):
        self.git("add", "-A")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")[:12]

    def ab(self, *arguments, **environment):
        return self.run(self.root / "scripts" / "ab", *arguments, **{"NOISEFLOOR_PRESET": "host", **environment})


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path)


def test_builds_both_and_compares(repository):
    base = repository.git("rev-parse", "HEAD")[:12]
    repository.commit("two")
    result = repository.ab("HEAD~1", "--ops", "gemm")
    assert result.returncode == 0, result.stderr
    new = f"{repository.root}/build/host/bin/noisefloor"
    assert result.stdout == f"{new} ab {repository.root}/build/ab/{base}/build/host/bin/noisefloor {new} --ops gemm\n"
    assert repository.ab("main", CODE="1").returncode == 1, "the comparison's"


def test_only_the_last_base_is_kept(repository):
    repository.commit("two")
    for base in ("HEAD~1", "HEAD", "HEAD"):
        assert repository.ab(base).returncode == 0
    assert [path.name for path in (repository.root / "build" / "ab").iterdir()] == [repository.git("rev-parse", "HEAD")[:12]]


def test_two_at_once(repository):
    (repository.root / "build").mkdir()
    with held(repository.root / "build" / ".ab.lock"):
        result = repository.ab("HEAD")
        assert result.returncode == 2 and "another scripts/ab of this checkout is running" in result.stderr


def test_a_base_that_was_changed_is_checked_out_anew(repository):
    assert repository.ab("HEAD").returncode == 0
    [tree] = (repository.root / "build" / "ab").iterdir()
    (tree / "scripts" / "lib.sh").write_text("broken")
    (repository.root / "build" / "ab" / "not-a-worktree").mkdir()
    result = repository.ab("HEAD")
    assert result.returncode == 0 and "checking it out anew" in result.stderr
    assert (tree / "scripts" / "lib.sh").read_text() != "broken" and [path.name for path in (repository.root / "build" / "ab").iterdir()] == [tree.name]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_build_that_hangs_is_named_and_ends_with_the_script(repository, number):
    """As a compiler that never ends, below CMake, in the base's tree alone."""
    begun = repository.root / "build/begun"
    repository.program("cmake", CMAKE.replace('mkdir -p "$2/bin"', f'case "$2" in */ab/*) sleep 200 & >"{begun}"; wait; esac; mkdir -p "$2/bin"'))
    repository.program("sleep", f'#!/bin/sh\n[ "$1" != 30 ] || set -- 0.2\nexec {shutil.which("sleep")} "$@"\n')
    environment = {**os.environ, **repository.environment, "NOISEFLOOR_PRESET": "host"}
    with subprocess.Popen([repository.root / "scripts/ab", "HEAD"], stderr=subprocess.PIPE, text=True, env=environment,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as script:
        line = next(line for line in script.stderr if "still building" in line and begun.exists())
        assert f"{repository.root}/build/ab/{repository.git('rev-parse', 'HEAD')[:12]}/build/host, since " in line
        script.send_signal(number)
        _, said = script.communicate(timeout=120)  # until all have ended that have its stderr
        assert script.returncode == 130 and "interrupted while building" in said


def test_a_base_that_does_not_configure(repository):
    (repository.root / "broken").write_text("")
    repository.commit("broken")
    (repository.root / "broken").unlink()
    result = repository.ab("HEAD")
    assert result.returncode == 2 and "CMake refused" in result.stderr


@pytest.mark.parametrize("arguments, says", [([], "no BASE"), (["--ops"], "no BASE"), (["nowhere"], "'nowhere' is no branch or commit here")])
def test_what_is_no_base(repository, arguments, says):
    result = repository.ab(*arguments)
    assert result.returncode == 2 and says in result.stderr
