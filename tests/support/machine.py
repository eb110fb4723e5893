"""A machine of stand-ins: programs that lie first on PATH, and a driver's library that answers as a test asks."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Stands in for nvidia-smi. What it says goes to stdout, as the real one's complaints do.
NVIDIA_SMI = "#!/bin/sh\ncat <<'SAID'\n{said}\nSAID\nexit {code}\n"
# Python, but for who asks the driver's library: there it has none, whatever this machine has.
NO_DRIVER = '#!/bin/sh\n[ "$*" != "-I -" ] || exit 9\nexec {python} "$@"\n'
# The driver's library: DRIVER is the error of cuInit, or "MAJOR MINOR MAJOR MINOR", a pair for each GPU.
LIBCUDA = r"""
#include <cstdio>
#include <cstdlib>
#include <cstring>
static int read_numbers(int* numbers) {
  int count = 0;
  for (char* text = strdup(getenv("DRIVER")), *word = strtok(text, " "); word; word = strtok(nullptr, " ")) numbers[count++] = atoi(word);
  return count;
}
extern "C" {
int cuInit(unsigned) { int n[8]; return read_numbers(n) == 1 ? n[0] : 0; }
int cuGetErrorString(int, const char** text) { *text = "words of the driver"; return 0; }
int cuDeviceGetCount(int* count) { int n[8]; *count = read_numbers(n) / 2; return 0; }
int cuDeviceGet(int* device, int index) { *device = index; return 0; }
int cuDeviceGetName(char* name, int bytes, int device) { snprintf(name, bytes, "GPU %d", device); return 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) { int n[8]; read_numbers(n); *value = n[2 * device + attribute - 75]; return 0; }
}
"""


class Machine:
    def __init__(self, folder):
        self.tools = folder / "tools"
        self.tools.mkdir()
        self.environment = {"PATH": f"{self.tools}:{os.environ['PATH']}", "NOISEFLOOR_PRESET": "", "CUDACXX": ""}

    def program(self, name, text):
        path = self.tools / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def nvidia_smi(self, said, code=0):
        """What nvidia-smi says; there is no library to ask."""
        self.program("nvidia-smi", NVIDIA_SMI.format(said=said, code=code))
        self.program("python3", NO_DRIVER.format(python=sys.executable))

    def driver(self, answer):
        (self.tools / "libcuda.cpp").write_text(LIBCUDA)
        subprocess.run(["g++", "-shared", "-fPIC", "-o", self.tools / "libcuda.so.1", self.tools / "libcuda.cpp"], check=True)
        self.environment |= {"LD_LIBRARY_PATH": str(self.tools), "DRIVER": answer}

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
