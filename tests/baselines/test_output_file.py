"""The files that Python programs write where a user says: links, pipes, open files, and what is refused before the work."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from baselines.pytorch.output_file import Refused, OutputFile

ROOT = Path(__file__).resolve().parents[2]


def write(file, text="new"):
    OutputFile(file).write(lambda part: Path(part).write_text(text))


def test_links_are_followed(tmp_path):
    (tmp_path / "d").mkdir()
    old = tmp_path / "d" / "old"
    old.write_text("old")
    old.chmod(0o640)
    (tmp_path / "link").symlink_to("d/old")
    (tmp_path / "dangling").symlink_to("d/new")
    (tmp_path / "circle").symlink_to("circle")
    write(tmp_path / "link")
    write(tmp_path / "dangling")
    assert (tmp_path / "link").is_symlink() and old.read_text() == "new" and stat.S_IMODE(old.stat().st_mode) == 0o640
    assert (tmp_path / "dangling").is_symlink() and (tmp_path / "d" / "new").read_text() == "new"
    with pytest.raises(Refused, match="--out .*circle: cannot be written"):
        OutputFile(tmp_path / "circle")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["circle", "d", "dangling", "link", "new", "old"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a file of another user")
def test_another_users_file_in_a_folder_like_tmp(tmp_path):
    (tmp_path / "f").write_text("old, and longer")
    for path, mode in ((tmp_path / "f", 0o666), (tmp_path, 0o1777)):
        os.chown(path, 12345, 12345)
        path.chmod(mode)
    program = "import sys; from pathlib import Path; from baselines.pytorch.output_file import OutputFile; import os; os.chdir(sys.argv[1]); os.setuid(65534); " \
        "OutputFile('f').write(lambda part: Path(part).write_text('new'))"
    subprocess.run([sys.executable, "-c", program, tmp_path], check=True, cwd=ROOT)
    assert (tmp_path / "f").read_text() == "new" and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("full", [False, True])
def test_a_failure_leaves_what_was_there(tmp_path, monkeypatch, full):
    """Of who writes, or of a disk that is full at the end."""
    (tmp_path / "f").write_text("old")

    def fails(part, *_):
        Path(part).write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    if full:
        monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(Refused, match="No space"):
        OutputFile(tmp_path / "f").write((lambda part: Path(part).write_text("new")) if full else fails)
    assert (tmp_path / "f").read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_pipes_and_devices_are_written_as_they_are(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write(tmp_path / "pipe", "text")
    write("/dev/null")
    assert os.read(reader, 10) == b"text" and (tmp_path / "pipe").is_fifo()
    os.close(reader)
    program = ("from baselines.pytorch.output_file import OutputFile; from pathlib import Path; out = OutputFile('/dev/stdout'); "
               "out.write(lambda part: Path(part).write_text('text')); print('words', file=out.words)")
    for how in ({"stdout": subprocess.PIPE}, {"stdout": open(tmp_path / "log", "ab")}):
        device = os.lstat("/dev/stdout").st_ino  # a look may change its time of access
        (tmp_path / "log").write_text("before ")
        result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.PIPE, check=True, **how)
        assert result.stderr == b"words\n" and os.lstat("/dev/stdout").st_ino == device
        assert (result.stdout or (tmp_path / "log").read_bytes()) in (b"text", b"before text")


def test_files_that_are_open_are_written_where_they_are(tmp_path):
    for name in ("/dev/fd/{}", "/proc/self/fd/{}", f"/proc/{os.getpid()}/fd/{{}}", "link"):
        with open(tmp_path / "log", "wb") as log:
            os.write(log.fileno(), b"before ")
            if name == "link":
                (tmp_path / "link").symlink_to(f"/dev/fd/{log.fileno()}")
                name = str(tmp_path / "link")
            write(name.format(log.fileno()), "text")
            os.write(log.fileno(), b" after")
        assert (tmp_path / "log").read_text() == "before text after", name
    with pytest.raises(Refused, match="is no open file"):
        OutputFile(f"/dev/fd/{10**6}")


def test_what_cannot_be_written_is_refused_at_once(tmp_path):
    for file, says in (("", "empty"), (tmp_path, "is a folder"), (f"{tmp_path}/", "is a folder"), (tmp_path / "no" / "x", "there is no folder")):
        with pytest.raises(Refused, match=says):
            OutputFile(file)
    assert not list(tmp_path.iterdir())


# With a name that is no PNG's, a folder, no folder and nothing: before a run is read, or weights.
@pytest.mark.parametrize("program, option", [
    ("reports/plots/plot_roofline.py none", "--out"),
    ("tools/tuned_table.py groupnorm none", "--out"),
    ("-m baselines.pytorch.digits.judge none", "--table"),
    ("reports/plots/draw_corruption.py --noisefloor none", "--out"),
])
def test_programs_look_at_it_first(program, option, tmp_path):
    (tmp_path / "folder.png").mkdir()
    for name, says in ((tmp_path / "folder.png", "is a folder"), (tmp_path / "none" / "x.png", "there is no folder")):
        result = subprocess.run([sys.executable, *program.split(), option, name], cwd=ROOT, capture_output=True, text=True, timeout=100)
        assert result.returncode == 2 and says in result.stderr and "Traceback" not in result.stderr, result.stderr
