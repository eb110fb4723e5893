"""A lock that another process holds."""

import contextlib
import subprocess


@contextlib.contextmanager
def held(file):
    with subprocess.Popen(["flock", file, "sh", "-c", "echo held; cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        yield  # the end of its input ends it
