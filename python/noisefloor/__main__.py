"""python3 -m noisefloor capture [--out DIR] [--network NAME] -- SCRIPT [ARGUMENTS]"""

import argparse
import re
import runpy
import sys
import traceback
from pathlib import Path


def run_program(words):
    """As Python itself would, with the same interpreter. Returns the exit code."""
    try:
        if words[0] == "-m":
            sys.argv, sys.path[0] = words[1:], ""
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv, sys.path[0] = words, str(Path(words[0]).resolve().parent)
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main():
    parser = argparse.ArgumentParser(prog="noisefloor capture", usage="noisefloor capture [--out DIR] [--network NAME] -- [python] SCRIPT [ARGUMENTS]",
                                     description="Runs a PyTorch program, and says which problems of the catalogue its calls are.")  # fmt: skip
    parser.add_argument("what", choices=["capture"], help=argparse.SUPPRESS)
    parser.add_argument("--out", metavar="DIR", help="new folder for problem files, which noisefloor sweep --problems DIR takes")
    parser.add_argument("--network", metavar="NAME", help="the network's name in them (default: the script's)")
    own, words = sys.argv[1:], []
    if "--" in own:
        own, words = own[: own.index("--")], own[own.index("--") + 1 :]
    arguments = parser.parse_args(own)
    if words and re.fullmatch(r"python[\d.]*", Path(words[0]).name):
        words = words[1:]
    if not words or words == ["-m"] or (words[0] != "-m" and not Path(words[0]).is_file()):
        parser.error(f"{words[0]}: no such script" if words and words != ["-m"] else "name a script behind --")
    import noisefloor

    try:
        from noisefloor import _capture, _captured  # noqa: F401 - the first needs PyTorch

        network = arguments.network or Path(words[words[0] == "-m"]).stem
        if arguments.out:
            _captured.checked(arguments.out, network)
    except (ImportError, OSError, ValueError) as error:
        parser.error(f"PyTorch is not here: {error}" if isinstance(error, ImportError) else str(error))
    with noisefloor.capture() as captured:
        code = run_program(words)
    print(captured, file=sys.stderr)
    if arguments.out and code:
        print(f"\n{arguments.out}: not written, as the script ended with {code}", file=sys.stderr)
    elif arguments.out:
        try:
            dtype = captured.write(arguments.out, network)
        except (OSError, ValueError) as error:
            parser.error(str(error))
        print(f"\n{arguments.out}: noisefloor sweep --problems {arguments.out} --networks {network} --dtypes {dtype}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
