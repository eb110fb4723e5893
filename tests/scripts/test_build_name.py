"""What a build is called: its commit only where the repository is this tree's own, and never the same for two trees."""

import os
import re
import shutil
import subprocess

import pytest

from tests.support.machine import ROOT, git

SCRIPT = ROOT / "scripts" / "cmake" / "build_info.cmake"

pytestmark = pytest.mark.skipif(not (shutil.which("git") and shutil.which("cmake")), reason="needs git and cmake")


class Tree:
    def __init__(self, folder):
        self.folder = folder
        self.write("bench/platform/build_info.cpp.in", "@COMMIT@")
        self.write("kernels/kernel.cu", "one\n")
        self.write("docs/page.md", "one\n")

    def write(self, name, text):
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def git(self, *arguments):
        return git(self.folder, *arguments)

    def commit(self):
        self.git("init", "-q")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "one")
        return self.git("rev-parse", "--short=12", "HEAD")

    def build(self, **environment):
        """Its name, and what was said of it."""
        output = self.folder.parent / "build_info.cpp"
        done = subprocess.run([shutil.which("cmake"), "-D", f"SOURCE={self.folder}", "-D", f"OUTPUT={output}", "-P", SCRIPT], check=True,
                              capture_output=True, text=True, env=os.environ | environment)
        return output.read_text().strip(), done.stdout + done.stderr

    def name(self, **environment):
        return self.build(**environment)[0]


@pytest.fixture(params=["tree", "o'neil & (copy) $HOME"])
def tree(tmp_path, request):
    return Tree(tmp_path / "inner" / request.param)


def leave_behind(tree):
    """What Python, editors and file systems leave, which no build takes."""
    for name in ("__pycache__/x.pyc", ".kernel.cu.swp", "._kernel.cu", "kernel.cu~", "#kernel.cu#", ".ipynb_checkpoints/kernel.cu"):
        tree.write(f"kernels/{name}", "two\n")


def test_a_tarball_is_called_by_its_sources(tree, tmp_path):
    name, said = tree.build()
    assert re.fullmatch("src-[0-9a-f]{12}", name) and name in said
    assert tree.build() == (name, ""), "said once"
    tree.write("docs/page.md", "two\n")  # is not built
    leave_behind(tree)
    assert tree.name() == name
    assert Tree(tmp_path / "another").name() == name
    names = {name}
    for file, text in [("kernels/kernel.cu", "two\n"), ("bench/problems/gemm.csv", "m\n"), ("CMakeLists.txt", "\n"), ("kernels/more.def", "\n")]:
        tree.write(file, text)
        names.add(tree.name())
    (tree.folder / "kernels/kernel.cu").rename(tree.folder / "kernels/renamed.cu")
    assert len(names | {tree.name()}) == 6


def test_the_repository_around_it_is_not_its_own(tree, tmp_path):
    name = tree.name()
    outer = Tree(tree.folder.parent)
    commit = outer.commit()
    assert tree.name() == name and commit not in name
    tree.git("init", "-q")
    assert tree.name() == name, "a repository without a commit"
    tree.commit()
    (tmp_path / "bin").mkdir()
    assert tree.name(PATH=str(tmp_path / "bin")) == name != tree.name(), "without git"


def test_every_dirty_tree_is_a_build_of_its_own(tree):
    commit = tree.commit()
    names = [tree.name()]
    assert names == [commit]
    for file, text in [("kernels/kernel.cu", "two\n"), ("kernels/kernel.cu", "three\n"), ("bench/new.h", "four\n"), ("bench/new.h", "five\n"),
                       ("bench/new.def", "six\n")]:
        tree.write(file, text)
        names.append(tree.name())
    assert len(set(names)) == 6 and all(re.fullmatch(f"{commit}-dirty.[0-9a-f]{{12}}", name) for name in names[1:])
    for new in ("new.h", "new.def"):
        (tree.folder / "bench" / new).unlink()
    tree.write("kernels/kernel.cu", "two\n")
    assert tree.name() == names[1]
    tree.write("kernels/kernel.cu", "one\n")
    tree.write("docs/page.md", "two\n")
    leave_behind(tree)
    assert tree.name() == commit, "what is built is the commit's"


def test_changes_that_git_was_told_to_pass_over(tree):
    commit = tree.commit()
    tree.write(".git/info/exclude", "*.cpp\n")
    tree.write("kernels/ignored.cpp", "built all the same\n")
    ignored = tree.name()
    (tree.folder / "kernels/ignored.cpp").unlink()
    assert tree.name() == commit
    tree.git("update-index", "--assume-unchanged", "kernels/kernel.cu")
    tree.write("kernels/kernel.cu", "two\n")
    assert len({commit, ignored, tree.name()}) == 3


def test_another_repository_that_git_is_told_of(tree, tmp_path):
    other = Tree(tmp_path / "other")
    other.write("kernels/kernel.cu", "another\n")
    other.commit()
    told = {"GIT_DIR": str(other.folder / ".git"), "GIT_WORK_TREE": str(other.folder), "GIT_INDEX_FILE": str(other.folder / ".git/index")}
    name = tree.name(**told)
    assert name.startswith("src-")
    commit = tree.commit()
    assert tree.name(**told) == commit
    assert tree.name(GIT_CONFIG_COUNT="1", GIT_CONFIG_KEY_0="core.worktree", GIT_CONFIG_VALUE_0=str(other.folder)) == commit


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a checkout away")
def test_a_checkout_of_another_user(tree):
    commit = tree.commit()
    for path in [tree.folder, *tree.folder.rglob("*")]:
        os.chown(path, 12345, 12345)
    assert tree.name() == commit
