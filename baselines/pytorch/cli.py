"""The command line. PyTorch is imported only by what needs it."""

import argparse
import difflib
import os
import re
import sys

from baselines.pytorch.errors import CannotRun
from baselines.pytorch.problems import ask_program, in_networks, parse_problems
from baselines.pytorch.variants import OF_OP, OPS, VARIANTS

DTYPES = ("bf16", "fp16", "fp32")
DESCRIPTION = """Appends PyTorch's rows to a noisefloor run folder. Exit codes: 0 done, 1 a row is incorrect or failed on the device,
2 could not do what was asked."""


def _names(text, known, what):
    """'a,b' -> ['a', 'b'], each of them known."""
    names = [name for name in text.split(",") if name]
    for name in names:
        if known and name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean '{close[0]}'?" if close else f"; known: {', '.join(known)}"
            raise CannotRun(f"unknown {what} '{name}'{hint}")
    return names


def _positive(text):
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def _shard(text):
    match = re.fullmatch(r"(\d{1,5})/(\d{1,5})", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise argparse.ArgumentTypeError(f"'{text}' is not I/N with I from 1 to N")
    return int(match[1]), int(match[2])


def _parser():
    parser = argparse.ArgumentParser(prog="python3 -m baselines.pytorch", description=DESCRIPTION)
    parser.add_argument("--list", action="store_true", help="print the ops and variants, and whether they can run here")
    commands = parser.add_subparsers(dest="command")
    sweep = commands.add_parser("sweep", description=DESCRIPTION, help="time the problems of networks, or those on standard input")
    sweep.add_argument("--run-dir", required=True, metavar="DIR", help="the folder that `noisefloor sweep` wrote or will write")
    sweep.add_argument("--noisefloor", metavar="PATH", help="the program to ask for problems; without it, they are read from standard "
                       "input as `noisefloor list problems --format json` prints them")
    sweep.add_argument("--ops", default="", metavar="A,B", help=f"default: all of {','.join(OPS)}")
    sweep.add_argument("--networks", default="", metavar="A,B", help="or 'all'; default: the problems and networks that the run folder "
                       "has rows of; in a new one, all")
    sweep.add_argument("--problems", metavar="DIR", help="folder of problem files for --noisefloor (default: the program's own)")
    sweep.add_argument("--dtypes", default="", metavar="A,B", help="default: those of the run folder's rows; in a new one, bf16")
    sweep.add_argument("--variants", default=",".join(VARIANTS), metavar="A,B", help=f"default: {','.join(VARIANTS)}")
    sweep.add_argument("--device", type=int, default=0, metavar="N", help="CUDA device, default 0")
    sweep.add_argument("--shard", type=_shard, metavar="I/N", help="only every N-th row, as `noisefloor sweep --shard`; without "
                       "--networks, of the networks in the run folder's networks.csv")
    sweep.add_argument("--budget", type=_positive, metavar="SECONDS", help="start no further row after this long; what is left out goes to "
                       "standard error")
    sweep.add_argument("--compile-mode", default="default", choices=("default", "max-autotune-no-cudagraphs"),
                       help="mode of torch.compile (default: %(default)s); the other tries more kernels and takes 10 to 20 s a row. CUDA "
                       "graphs are captured by us in either")
    sweep.add_argument("--crosscheck", action="store_true", help="also write crosscheck.csv: our median beside triton.testing.do_bench's")
    return parser


def _import_torch(device):
    try:
        import torch
    except ImportError as error:
        raise CannotRun(f"PyTorch cannot be imported ({error}); its rows are left out") from None
    if not torch.cuda.is_available():
        raise CannotRun("PyTorch sees no CUDA device; its rows are left out")
    if not 0 <= device < torch.cuda.device_count():
        raise CannotRun(f"--device {device}: there are {torch.cuda.device_count()} CUDA devices")


def _list():
    print("op                 variants")
    for op, variants in OF_OP.items():
        print(f"{op:<18} {', '.join(variants)}")
    try:
        _import_torch(0)
        import torch

        print(f"\nPyTorch {torch.__version__} on {torch.cuda.get_device_name(0)}")
    except CannotRun as error:
        print(f"\n{error}")


def _sweep(arguments):
    ops = _names(arguments.ops, OPS, "op") or list(OPS)
    networks = _names(arguments.networks, (), "network")
    dtypes = _names(arguments.dtypes, DTYPES, "dtype")
    variants = _names(arguments.variants, VARIANTS, "variant")
    if arguments.problems and not arguments.noisefloor:
        raise CannotRun("--problems is for --noisefloor")
    if arguments.noisefloor:
        problems = ask_program(arguments.noisefloor, ops, networks, arguments.problems)
    else:
        if sys.stdin.isatty():
            raise CannotRun("give --noisefloor PATH, or pipe `noisefloor list problems --format json` into standard input")
        problems = [problem for problem in parse_problems(sys.stdin, "standard input") if problem.op in ops]
        if networks:
            problems = in_networks(problems, networks)
        if not problems:
            raise CannotRun("no problem on standard input has one of these ops and networks")
    if arguments.compile_mode == "default":
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # few kernels a row: starting a pool of workers takes longer
    _import_torch(arguments.device)

    import torch

    from baselines.pytorch.rows import RunFolder
    from baselines.pytorch.sweep import DeviceLost, Sweep, order, versions

    with RunFolder(arguments.run_dir, torch.cuda.get_device_name(arguments.device)) as folder:
        if not networks:
            problems = folder.of_networks(problems) if arguments.shard else folder.swept(problems)
        if not dtypes and not arguments.shard:  # a part may have no row of a dtype that others have
            asked = {(problem.op, problem.text) for problem in problems}  # some ends of networks are in fp32 whatever the network
            dtypes = sorted({dtype for op, text, dtype, _ in folder.done if (op, text) in asked} & set(DTYPES))
        cases = order(problems, dtypes or ["bf16"], variants)
        part = {}
        if arguments.shard:
            index, count = arguments.shard
            cases = cases[index - 1 :: count]
            part = {"shard": f"{index}/{count}", "cases": len(cases)}
        folder.write_versions(versions() | part)
        sweep = Sweep(folder, arguments.device, arguments.compile_mode, arguments.crosscheck)
        try:
            counts = sweep.run(cases, arguments.budget)
        except DeviceLost as error:
            print(f"the device failed, the sweep stops here: {error}", file=sys.stderr)
            return 1
    print(", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or "nothing to do", file=sys.stderr)
    return 1 if counts.keys() & {"incorrect", "cuda_error"} else 0


def main(argv):
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        if arguments.list:
            _list()
            return 0
        if arguments.command is None:
            parser.error("give a command: sweep, or --list")
        return _sweep(arguments)
    except CannotRun as error:
        print(f"python3 -m baselines.pytorch: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; finished rows are kept, the same command resumes", file=sys.stderr)
        return 2
