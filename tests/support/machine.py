"""A machine of stand-ins: programs that lie first on PATH, and a driver's library that answers as a test asks."""

import atexit
import contextlib
import functools
import os
import shutil
import subprocess
import tempfile
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBCUDA = r"""
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>
struct Gpu { int part[2]; std::string name; };
static std::vector<Gpu> gpus() {
  std::vector<Gpu> all;
  std::istringstream text(getenv("DRIVER"));
  for (std::string one; std::getline(text, one, ';');) {
    Gpu gpu;
    std::istringstream words(one);
    if (words >> gpu.part[0] >> gpu.part[1] >> std::ws && std::getline(words, gpu.name)) all.push_back(gpu);
  }
  return all;
}
extern "C" {
int cuInit(unsigned) { return gpus().empty() ? atoi(getenv("DRIVER")) : 0; }
int cuGetErrorString(int, const char** text) { *text = "words of the driver"; return 0; }
int cuDeviceGetCount(int* count) { *count = gpus().size(); return 0; }
int cuDeviceGet(int* device, int index) { *device = index; return 0; }
int cuDeviceGetName(char* name, int bytes, int device) { strncpy(name, gpus()[device].name.c_str(), bytes); return 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) { *value = gpus()[device].part[attribute - 75]; return 0; }
}
"""


@functools.cache
def driver_library():
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    (folder / "libcuda.cpp").write_text(LIBCUDA)
    subprocess.run(["g++", "-shared", "-fPIC", "-o", folder / "libcuda.so.1", folder / "libcuda.cpp"], check=True)
    return folder


def load_tool(name):
    """tools/NAME, whose file has no ending, as a module."""
    loader = SourceFileLoader(name, str(ROOT / "tools" / name))
    tool = module_from_spec(spec_from_loader(name, loader))
    loader.exec_module(tool)
    return tool


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def git(folder, *arguments):
    """What git prints, without the white space around it; its commits are a test's."""
    identity = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "safe.directory=*")
    return subprocess.run(["git", "-C", folder, *identity, *arguments], capture_output=True, text=True, check=True).stdout.strip()


class Machine:
    def __init__(self, folder):
        self.tools = folder / "tools"
        self.tools.mkdir()
        self.environment = {"PATH": f"{self.tools}:{os.environ['PATH']}", "NOISEFLOOR_PRESET": "", "CUDACXX": ""}

    def program(self, name, text):
        return executable(self.tools / name, text)

    def driver(self, answer):
        """Its library: `answer` is the error of cuInit, or "MAJOR MINOR NAME; MAJOR MINOR NAME"."""
        self.environment |= {"LD_LIBRARY_PATH": str(driver_library()), "DRIVER": answer}

    def run(self, *command, cwd=None, without=(), **environment):
        environment = {name: value for name, value in (os.environ | self.environment | environment).items() if name not in without}
        return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL, cwd=cwd,
                              env=environment)

    def bash(self, text, *arguments, **options):
        """A script of these lines, with scripts/lib.sh."""
        return self.run("bash", "-c", f'set -euo pipefail; . "{ROOT}/scripts/lib.sh"; {text}', "test", *arguments, **options)


def copy_tree(to, *rooms):
    """The sources of these rooms, or all that is built."""
    to.mkdir(parents=True)
    for room in rooms or ("baselines", "bench", "kernels", "networks", "reports", "scripts", "tests", "CMakeLists.txt", "CMakePresets.json"):
        if (ROOT / room).is_dir():
            shutil.copytree(ROOT / room, to / room, ignore=shutil.ignore_patterns("recorded", "__pycache__", "corpus", "weights", "*.safetensors"))
        else:
            shutil.copy(ROOT / room, to / room)
    return to


@contextlib.contextmanager
def held(file):
    """A lock that another process holds."""
    with subprocess.Popen(["flock", file, "sh", "-c", "echo held; cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        yield  # the end of its input ends it
