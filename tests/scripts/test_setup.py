"""scripts/setup: which Python packages it installs for what, and where, with stand-ins for pip and for what is installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

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


class Clone:
    def __init__(self, folder):
        self.folder, self.tools, self.calls = folder, folder / "tools", folder / "calls"
        (folder / ".venv" / "bin").mkdir(parents=True)
        (folder / "scripts").mkdir()
        self.tools.mkdir()
        for file in (ROOT / "scripts").glob("requirements*.txt"):
            shutil.copy(file, folder / "scripts")
        for name in ("setup", "lib.sh"):
            shutil.copy(ROOT / "scripts" / name, folder / "scripts")
        self.program(".venv/bin/python3", PYTHON)
        self.program("tools/dpkg-query", DPKG_QUERY)
        self.program("tools/cmake", "#!/bin/sh\necho cmake version 3.25.1\n")
        for name in ("ninja", "g++", "ccache", "nvcc"):
            self.program(f"tools/{name}", "#!/bin/sh\n")
        for name in ("apt-get", "nvidia-smi"):
            self.program(f"tools/{name}", "#!/bin/sh\nexit 1\n")

    def program(self, name, text):
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def run(self, *command, **environment):
        environment = {**os.environ, "PATH": f"{self.tools}:{os.environ['PATH']}", "CALLS": str(self.calls),
                       "CUDACXX": str(self.tools / "nvcc"), **environment}
        self.calls.write_text("")
        result = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=60,
                                stdin=subprocess.DEVNULL)
        result.calls = self.calls.read_text().splitlines()
        return result

    def setup(self, *arguments, **environment):
        return self.run("scripts/setup", *arguments, **environment)


@pytest.fixture
def clone(tmp_path):
    return Clone(tmp_path)


def test_a_sweep_gets_what_it_needs_and_no_more(clone):
    result = clone.setup("--sweep")
    assert result.returncode == 0, result.stderr
    [call] = result.calls
    assert " --no-deps --no-compile " in call
    assert "plotly==" in call and "nvidia-cudnn-frontend==" in call
    assert "pytest" not in call and "pandas" not in call
    assert clone.setup("--sweep").calls == []
    assert clone.setup("--check", "--sweep").returncode == 0


def test_without_arguments_everything_is_installed_once(clone):
    result = clone.setup()
    assert result.returncode == 0, result.stderr
    files, packages = result.calls
    assert "plotly==" in files
    assert "pytest==" in packages and "pandas==" in packages and "--no-deps" not in packages
    assert clone.setup().calls == []
    assert clone.setup("--sweep").calls == []


def test_the_rest_comes_later(clone):
    assert clone.setup("--sweep").returncode == 0
    [call] = clone.setup().calls
    assert "pytest==" in call and "plotly" not in call


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


def test_a_sweep_does_not_mind_packages_of_tests(clone):
    assert clone.setup("--sweep", LACKING="pytest").returncode == 0


@pytest.mark.parametrize("script", ["sweep", "sample", "ncu", "nsys", "bundle"])
def test_scripts_that_measure_set_up_for_that_alone(script):
    lines = [line.strip() for line in (ROOT / "scripts" / script).read_text().splitlines()]
    assert [line for line in lines if line.split() and line.split()[0] == "setup"] == ["setup --sweep"]


# Stands in for the pip of a real .venv, without a network: does what the settings of pip say that matter here.
PIP = """import os, pathlib, sys, sysconfig
settings = {name[4:].lower(): value for name, value in os.environ.items() if name.startswith("PIP_")}
if os.path.isfile(file := settings.get("config_file", "")):
    settings |= dict(line.strip().split(" = ") for line in open(file))
if settings.get("user") and "--no-user" not in sys.argv:
    sys.exit("Can not perform a '--user' install")
place = pathlib.Path(settings.get("target") or settings.get("prefix") or settings.get("root") or sysconfig.get_path("purelib"))
for line in open(sys.argv[sys.argv.index("-r") + 1]):
    if "==" in line and "dry_run" not in settings and not os.environ.get("NOTHING"):
        name, version = line.split("#")[0].split(";")[0].strip().replace("-", "_").split("==")
        folder = place / f"{name}-{version}.dist-info"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "METADATA").write_text(f"Name: {name}\\nVersion: {version}\\n")
        (folder / "RECORD").write_text(f"{name}-{version}.dist-info/METADATA,,\\n{name}.py,,\\n")
        (place / f"{name}.py").write_text("")
"""


@pytest.fixture
def real(clone):
    """With a real .venv."""
    shutil.rmtree(clone.folder / ".venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", clone.folder / ".venv"], check=True)
    [site] = clone.folder.glob(".venv/lib/python3*/site-packages")
    (site / "pip").mkdir()
    (site / "pip" / "__main__.py").write_text(PIP)
    clone.site = site
    return clone


@pytest.mark.parametrize("settings", [{}, {"PIP_USER": "1"}, {"PIP_TARGET": "elsewhere"}, {"PIP_PREFIX": "elsewhere"}, {"PIP_ROOT": "elsewhere"},
                                      {"PIP_DRY_RUN": "1"}, {"PIP_CONFIG_FILE": "pip.conf"}, {"HOME": "/nonexistent"}, {"PYTHONPATH": "elsewhere"}],
                         ids=lambda settings: "".join(settings) or "none")
def test_packages_are_in_the_venv_whatever_pip_is_told(real, settings):
    (real.folder / "pip.conf").write_text("target = elsewhere\n")
    result = real.setup("--sweep", **settings)
    assert result.returncode == 0, result.stderr
    assert (real.site / "plotly.py").is_file()
    assert real.setup("--sweep", "--check", **settings).returncode == 0


def test_a_stamp_is_believed_where_the_packages_are(real):
    result = real.setup("--sweep", NOTHING="1")  # pip ends well and installs nothing
    assert result.returncode == 3 and ".venv lacks plotly" in result.stderr
    assert real.setup("--sweep", "--check").returncode == 1
    assert real.setup("--sweep").returncode == 0
    (real.site / "plotly.py").unlink()
    assert real.setup("--sweep", "--check").returncode == 1
    assert real.setup("--sweep").returncode == 0 and (real.site / "plotly.py").is_file()
    real.site.rename(real.site.parents[1] / "python3.0")  # another Python has taken its place
    assert real.setup("--sweep", "--check").returncode == 1


@pytest.mark.parametrize("update", [0, 100])
def test_one_broken_source_is_no_obstacle(clone, update):
    clone.program("tools/dpkg-query", "#!/bin/sh\necho installed libfmt-dev\n")
    clone.program("tools/sudo", '#!/bin/sh\n[ "$1" != -n ] || shift\nexec "$@"\n')
    clone.program("tools/apt-get", f'#!/bin/sh\ncase " $* " in *" update "*) exit {update} ;; *) echo "$*" >>apt ;; esac\n')
    result = clone.setup("--sweep")
    assert result.returncode == 0, result.stderr
    assert "libgtest-dev" in (clone.folder / "apt").read_text() and "libfmt-dev" not in (clone.folder / "apt").read_text()
    assert ("update failed" in result.stderr) == (update != 0)
