"""A file that a user names to be written, for all Python programs here; of noisefloor itself it is bench/commands/output_files.h."""

import errno
import os
import shutil
import stat
import sys
import tempfile


class CannotWrite(Exception):
    """A message that names option and file."""


def follow_links(path):
    """The target of a link, and of links to links, also one that is not there yet; of an open file (/dev/stdout) its name in /proc."""
    for _ in range(40):
        if not os.path.islink(path):
            return path
        folder = os.path.realpath(os.path.dirname(path))
        if folder == f"/proc/{os.getpid()}/fd":
            return os.path.join(folder, os.path.basename(path))
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


class OutputFile:
    """Made before the work: what cannot be written is refused then. `words` is where the program's own words go."""

    def __init__(self, file, option="--out"):
        self.name, self.option, self.words, self.open_file, self.stream = str(file), option, sys.stdout, None, False
        try:
            self.target = follow_links(self.name)
            self.look()
        except OSError as error:
            raise self.cannot(f"cannot be written: {error.strerror}") from None

    def cannot(self, why):
        return CannotWrite(f"{self.option} {self.name}: {why}")

    def look(self):
        if not self.name:
            raise self.cannot("its value is empty; give one, or leave it out")
        there = os.stat(self.target) if os.path.exists(self.target) else None
        if not os.path.basename(self.name) or (there and stat.S_ISDIR(there.st_mode)):
            raise self.cannot("is a folder")
        folder, number = os.path.split(self.target)
        if folder == f"/proc/{os.getpid()}/fd":
            self.open_file = int(number)
        self.stream = there is not None and (self.open_file is not None or not stat.S_ISREG(there.st_mode))
        if there and not os.access(self.target, os.W_OK):
            raise self.cannot("is read-only")
        if self.stream and not (stat.S_ISFIFO(there.st_mode) or stat.S_ISCHR(there.st_mode) or self.open_file is not None):
            raise self.cannot("is neither a file nor a pipe")
        if there and not (stat.S_ISCHR(there.st_mode) and self.open_file is None) and os.path.samestat(there, os.fstat(1)):
            self.words = sys.stderr
        if not self.stream:
            if not os.path.isdir(folder or "."):
                raise self.cannot(f"there is no folder {folder}")
            with open(self.partial(), "xb"):
                os.remove(self.partial())

    def partial(self):
        return f"{self.target}.{os.getpid()}.partial"

    def write(self, fill):
        """fill(path) writes a file, which is then put in place; a file that was there keeps its permissions."""
        if self.stream:
            with tempfile.TemporaryDirectory() as folder:
                part = os.path.join(folder, "part")
                fill(part)
                to = os.dup(self.open_file) if self.open_file is not None else os.open(self.target, os.O_WRONLY)
                with open(part, "rb") as kept, open(to, "wb") as stream:
                    shutil.copyfileobj(kept, stream)
            return
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
