"""scripts/setup: which Python packages it installs for what, and where, with stand-ins for pip and for what is installed."""

import shlex
import shutil
import sys

import pytest

from tests.support.machine import ROOT, Machine, executable

# Stands in for .venv's Python: writes what pip was asked for, one call a line. It starts, and finds whatever it is asked for.
PYTHON = """#!/usr/bin/env bash
[ "$2" = -m ] || exit 0
file=$(printf '%s\\n' "$@" | sed -n '/^-r$/{n;p}')
echo "$* :: $(sed 's/#.*//' "$file" | tr '\\n' ' ')" >>"$CALLS"
! grep -q "${LACKING:-nothing at all}" <(tail -n 1 "$CALLS")
"""
# Every Debian package is installed.
DPKG_QUERY = """#!/usr/bin/env bash
shift 3
printf 'installed %s\\n' "$@"
"""


class Clone(Machine):
    def __init__(self, folder):
        super().__init__(folder)
        self.folder, self.calls = folder, folder / "calls"
        (folder / "scripts").mkdir()
        for file in (*(ROOT / "scripts").glob("requirements*.txt"), ROOT / "scripts/setup", ROOT / "scripts/lib.sh"):
            shutil.copy(file, folder / "scripts")
        self.python(PYTHON)
        self.program("dpkg-query", DPKG_QUERY)
        self.program("cmake", "#!/bin/sh\necho cmake version 3.25.1\n")
        for name in ("ninja", "g++", "ccache", "nvcc"):
            self.program(name, "#!/bin/sh\n")
        self.program("apt-get", "#!/bin/sh\nexit 1\n")
        self.environment |= {"CALLS": str(self.calls), "CUDACXX": str(self.tools / "nvcc")}

    def python(self, text):
        executable(self.folder / ".venv/bin/python3", text)

    def run(self, *command, **environment):
        self.calls.write_text("")
        result = super().run(*command, cwd=self.folder, **environment)
        result.calls = self.calls.read_text().splitlines()
        return result

    def setup(self, *arguments, **environment):
        return self.run("scripts/setup", *arguments, **environment)


@pytest.fixture
def clone(tmp_path):
    return Clone(tmp_path)


def test_each_gets_what_it_needs_once(clone):
    """Of commands in turn: the packages that one asks pip for, beside those that it must not."""
    for command, calls in (("--sweep", [("plotly== nvidia-cudnn-frontend== --no-deps --no-compile", "pytest pandas")]), ("--sweep", []), ("--check --sweep", []),
                           ("", [("pytest== pandas==", "plotly --no-deps")]), ("", []), ("--sweep", [])):  # fmt: skip
        result = clone.setup(*command.split())
        assert result.returncode == 0 and len(result.calls) == len(calls), result.stderr
        for call, (has, lacks) in zip(result.calls, calls):
            assert all(word in call for word in has.split()) and not any(word in call for word in lacks.split()), call


def test_without_arguments_everything_is_installed(clone):
    files, packages = clone.setup().calls
    assert "plotly==" in files and "pytest==" in packages


def test_peers_go_where_pytorch_is(clone):
    assert any("flash-attn-4==" in call for call in clone.setup("--sweep", "--peers", NOISEFLOOR_PYTHON=str(clone.folder / ".venv/bin/python3")).calls)
    other = clone.folder / "other"
    executable(other, PYTHON)
    [call] = clone.setup("--sweep", "--peers", NOISEFLOOR_PYTHON=str(other)).calls
    assert "quack-kernels==" in call and "--no-deps" not in call
    assert clone.setup("--sweep", "--peers", "--check", NOISEFLOOR_PYTHON=str(other)).calls == []


def test_check_names_what_is_missing_and_installs_nothing(clone):
    result = clone.setup("--check", "--browser")
    assert result.returncode == 1 and result.calls == []
    for name in ("plotly", "pytest", "selenium"):
        assert name in result.stderr
    assert clone.setup("--sweep").returncode == 0
    result = clone.setup("--check")
    assert result.returncode == 1 and "pytest" in result.stderr and "plotly" not in result.stderr


def test_a_changed_requirement_is_installed_again(clone):
    assert clone.setup("--sweep").returncode == 0
    file = clone.folder / "scripts" / "requirements-sweep.txt"
    file.write_text(file.read_text().replace("plotly==", "plotly==9"))
    [call] = clone.setup("--sweep").calls
    assert "plotly==9" in call


@pytest.mark.parametrize("arguments, lacking", [(["--sweep"], "plotly"), ([], "plotly"), ([], "pytest")])
def test_measuring_goes_on_without_python_packages(clone, arguments, lacking):
    result = clone.setup(*arguments, LACKING=lacking)
    assert result.returncode == 3
    assert "could not be installed: measuring does without them" in result.stderr
    text = f'set -euo pipefail; . scripts/lib.sh; setup {" ".join(arguments)}; echo goes on'
    assert clone.run("bash", "-c", text, "sweep", LACKING=lacking).stdout == "goes on\n"
    assert len(clone.setup(*arguments).calls) >= 1  # the next time it is tried again
    assert lacking == "plotly" or clone.setup("--sweep", LACKING=lacking).returncode == 0  # which needs no packages of tests


def test_pip_is_told_where_packages_come_from_alone(clone):
    names = "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_DRY_RUN"
    clone.python(PYTHON.replace("$* ::", f"$* {' '.join(f'${{{name}:-}}' for name in names)} ${{PIP_INDEX_URL:-}} ::"))
    [call] = clone.setup("--sweep", **dict.fromkeys(names, "elsewhere"), PIP_INDEX_URL="https://a.mirror").calls
    assert "elsewhere" not in call and "https://a.mirror" in call


def test_another_python_gets_its_packages_anew(clone):
    assert clone.setup("--sweep").returncode == 0
    clone.python(PYTHON.replace("|| exit 0", '|| { echo 3 99; exit 0; }'))
    assert len(clone.setup("--sweep").calls) == 1 and clone.setup("--sweep").calls == []


def test_a_stamp_is_believed_where_the_packages_are(clone):
    def python(*options):
        clone.python(PYTHON.replace("|| exit 0", f'|| exec {shlex.join([sys.executable, *options])} "$@"'))

    python()
    (clone.folder / "scripts/requirements-cuda.txt").write_text("")
    wanted = clone.folder / "scripts/requirements-sweep.txt"
    wanted.write_text("no-such-package==1\n")
    result = clone.setup("--sweep")  # pip ends well and has installed nothing there
    assert result.returncode == 3 and ".venv lacks some of no-such-package" in result.stderr
    assert clone.setup("--sweep", "--check").returncode == 1
    wanted.write_text("pytest==1\n")
    assert clone.setup("--sweep").returncode == 0 and clone.setup("--sweep", "--check").returncode == 0
    python("-S")  # without the folder that has it
    assert clone.setup("--sweep", "--check").returncode == 1


@pytest.mark.parametrize("update", [0, 100])
def test_one_broken_source_is_no_obstacle(clone, update):
    clone.program("dpkg-query", "#!/bin/sh\necho installed libfmt-dev\n")
    clone.program("sudo", '#!/bin/sh\n[ "$1" != -n ] || shift\nexec "$@"\n')
    clone.program("apt-get", f'#!/bin/sh\ncase " $* " in *" update "*) exit {update} ;; *) echo "$*" >>apt ;; esac\n')
    result = clone.setup("--sweep")
    assert result.returncode == 0, result.stderr
    assert "libgtest-dev" in (clone.folder / "apt").read_text() and "libfmt-dev" not in (clone.folder / "apt").read_text()
    assert ("update failed" in result.stderr) == (update != 0)
