"""What a capture has heard: calls, the problems of the catalogue that they are, shares and problem files."""

import collections
import csv
import dataclasses
import re
import tempfile
from pathlib import Path

from noisefloor._mapping import Problem
from noisefloor._signatures import CATALOGUE


@dataclasses.dataclass
class Call:
    name: str  # PyTorch's
    flops: int = 0
    shape: tuple = ()  # of what it wrote
    problem: Problem | None = None
    reason: str = ""  # why it is none
    part: bool = False  # of a later call's problem
    seconds: float = 0.0
    events: tuple | None = None
    parts: list = dataclasses.field(default_factory=list)  # calls before that are of its problem

    def whole(self):
        return [self, *(one for part in self.parts for one in part.whole())]

    @property
    def mapped(self):
        return self.problem is not None or self.part


@dataclasses.dataclass(frozen=True)
class Group:
    """The calls of one problem, or those that have a name and a reason in common."""

    what: Problem | tuple
    count: int
    flops: int
    seconds: float


class Captured:
    def __init__(self):
        super().__init__()
        self.calls = []

    def problems(self):
        """Groups of the mapped calls, in the order of their first call; `what` is the Problem."""
        return grouped((call.problem, call) for call in self.calls if call.problem)

    def unmapped(self):
        """Groups of the other calls, the most FLOPs first; `what` is (PyTorch's name, the reason)."""
        return sorted(grouped(((call.name, call.reason), call) for call in self.calls if not call.mapped), key=lambda one: (-one.flops, -one.count))

    def coverage(self):
        """The mapped share of "calls", "flops" and "seconds" (on a GPU), 0 to 1; None if there are none."""
        shares = {}
        for name, amount in (("calls", lambda call: 1), ("flops", lambda call: call.flops), ("seconds", lambda call: call.seconds)):
            total = sum(map(amount, self.calls))
            shares[name] = sum(amount(call) for call in self.calls if call.mapped) / total if total else None
        return shares

    def report(self):
        """As text: the mapped shares, then calls and shares by op, then those of what is not mapped."""
        totals = {name: sum(getattr(call, name) for call in self.calls) for name in ("flops", "seconds")}
        columns = [(name, title) for name, title in (("flops", "% FLOPs"), ("seconds", "% time")) if totals[name]]
        what = {"calls": f"{len(self.calls)} calls", "flops": f"{totals['flops']:.4g} FLOPs", "seconds": f"{totals['seconds']:.4g} s on the GPU"}
        shares = [f"{100 * share:.2f} % of {what[name]}" for name, share in self.coverage().items() if share is not None]

        def line(text, groups):
            amounts = [f" {100 * sum(getattr(group, name) for group in groups) / totals[name]:8.2f}" for name, _ in columns]
            return f"{sum(group.count for group in groups):8}{''.join(amounts)}  {text}"

        head = f"\n{'calls':>8}{''.join(f' {title:>8}' for _, title in columns)}  "
        ops = collections.defaultdict(list)
        for group in self.problems():
            ops[group.what.op].append(group)
        lines = ["mapped: " + (", ".join(shares) or "nothing was called"), head + "mapped"]
        lines += [line(f"{op} ({len(groups)} problem{'s' * (len(groups) > 1)})", groups) for op, groups in ops.items()]
        if unmapped := self.unmapped():
            lines += [head + "not mapped", *(line(": ".join(group.what), [group]) for group in unmapped)]
        return "\n".join(lines)

    __str__ = report

    def write(self, folder, network="captured"):
        """Writes problem files, one for each op, into a new or empty folder: `noisefloor sweep --problems FOLDER` takes them. Returns the element
        type that most FLOPs are in, for --dtypes; problems of another type name theirs."""
        folder, groups = checked(folder, network), self.problems()
        if not groups:
            raise ValueError("nothing that was captured is a problem of the catalogue")
        weight = collections.Counter()
        for group in groups:
            weight[group.what.dtype] += group.flops
        own = weight.most_common(1)[0][0]
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as partial:
            self.write_files(Path(partial), groups, network, own)
            for file in Path(partial).iterdir():
                file.rename(folder / file.name)
        return own

    @staticmethod
    def write_files(folder, groups, network, own):
        for op in dict.fromkeys(group.what.op for group in groups):
            rows = [{"network": network, **group.what.fields, "count": group.count, "dtype": "" if group.what.dtype == own else group.what.dtype}
                    for group in groups if group.what.op == op]  # fmt: skip
            names = [field["name"] for field in CATALOGUE[op]["fields"]] + ["dtype"]
            with open(folder / f"{op}.csv", "x", newline="") as stream:
                writer = csv.DictWriter(stream, ["network", *(name for name in names if any(row.get(name) for row in rows)), "count"], restval="",
                                        extrasaction="ignore", lineterminator="\n")  # fmt: skip
                writer.writeheader()
                writer.writerows(rows)


def checked(folder, network):
    """The folder, which may take problem files of a network of that name."""
    folder = Path(folder)
    if not re.fullmatch(r"[\w.+-]+", network):
        raise ValueError(f"network '{network}': a name is of letters, digits and . _ + -")
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder}: is no folder")
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder}: is not empty; problem files go into a new folder")
    try:  # where it is, or will be made
        tempfile.TemporaryDirectory(dir=next(path for path in (folder, *folder.absolute().parents) if path.exists())).cleanup()
    except OSError as error:
        raise OSError(f"{folder}: cannot be written: {error.strerror}") from None
    return folder


def grouped(pairs):
    groups = {}
    for what, call in pairs:
        groups.setdefault(what, []).append(call)
    whole = {what: [one for call in calls for one in call.whole()] for what, calls in groups.items()}
    return [Group(what, len(calls), sum(one.flops for one in whole[what]), sum(one.seconds for one in whole[what])) for what, calls in groups.items()]
