"""A file that a user names to be written, for all Python programs here; of noisefloor itself it is bench/commands/output_files.h."""

import errno
import os
import re
import shutil
import stat
import sys
import tempfile


OPEN_FILE = re.compile("/(?:dev|proc/([^/]+))/fd/([0-9]+)")


class Refused(Exception):
    """A message for whoever called, which names the option or file."""


def exit_code(program, work, arguments):
    """Of a program whose work may be refused."""
    try:
        work(arguments)
    except Refused as why:
        print(f"{program}: {why}", file=sys.stderr)
        return 2
    return 0


class OutputFile:
    """Looked at before the work: what cannot be written is refused then. `words` is where the program's own words go."""

    def __init__(self, file, option="--out"):
        self.name, self.option = str(file), option
        try:
            try:
                there = os.stat(self.name)
            except FileNotFoundError:  # or a link to what will be
                there = None
            self.is_output = there is not None and os.path.samestat(there, os.fstat(1))
            linked = os.readlink(self.name) if os.path.islink(self.name) and not OPEN_FILE.fullmatch(self.name) else self.name  # /dev/stderr
            open_file = OPEN_FILE.fullmatch(linked)
            own = open_file is not None and open_file[1] in (None, "self", "thread-self", str(os.getpid()))
            self.descriptor = 1 if self.is_output else int(open_file[2]) if own else None
            self.is_stream = self.is_output or open_file is not None or there is not None and not stat.S_ISREG(there.st_mode)
            self.words = sys.stderr if self.is_output else sys.stdout
            self.target = os.path.realpath(self.name) if os.path.islink(self.name) else self.name
            self.look(there)
        except OSError as error:
            raise self.cannot(f"cannot be written: {error.strerror}") from None

    def cannot(self, why):
        return Refused(f"{self.option} {self.name}: {why}")

    def look(self, there):
        if not self.name:
            raise self.cannot("its value is empty; give one, or leave it out")
        if self.name.endswith("/") or (there and stat.S_ISDIR(there.st_mode)):
            raise self.cannot("is a folder")
        if self.is_stream and not there:
            raise self.cannot("is no open file")
        if there and not os.access(self.name, os.W_OK):
            raise self.cannot("is read-only")
        if not self.is_stream:
            if not os.path.isdir(os.path.dirname(self.target) or "."):
                raise self.cannot(f"there is no folder {os.path.dirname(self.name)}")
            with open(self.partial(), "xb"):
                os.remove(self.partial())

    def partial(self):
        return f"{self.target}.{os.getpid()}.partial"

    def write(self, fill):
        """fill(path) writes a file, which is then put in place; a file that was there keeps its permissions. Pipes and devices are written to."""
        try:
            if self.is_stream:
                self.stream(fill)
            else:
                self.replace(fill)
        except Exception as error:  # libraries have their own for a full disk
            raise self.cannot(f"cannot be written: {getattr(error, 'strerror', None) or error}") from error

    def stream(self, fill):
        with tempfile.TemporaryDirectory() as folder:
            part = os.path.join(folder, "part")
            fill(part)
            with open(part, "rb") as kept, open(self.name if self.descriptor is None else os.dup(self.descriptor), "wb") as stream:
                shutil.copyfileobj(kept, stream)

    def replace(self, fill):
        part = self.partial()
        try:
            fill(part)
            if os.path.exists(self.target):
                shutil.copymode(self.target, part)
            try:
                os.replace(part, self.target)
            except OSError as error:  # mounted by itself, or another user's in /tmp: written where it is
                if error.errno not in (errno.EBUSY, errno.EPERM, errno.EACCES):
                    raise
                shutil.copyfile(part, self.target)
        finally:
            if os.path.exists(part):
                os.remove(part)
