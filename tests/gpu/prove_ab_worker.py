#!/usr/bin/env python3
"""A slowed build as prove_ab.py has `noisefloor ab` start it: notes in a log which case the build's words belong to.

usage: prove_ab_worker.py PROGRAM PERCENT LOG ARGUMENTS...

`ab` keeps what a build says to itself. Here its standard error goes to LOG, behind a line "case NAME" for each case that it is asked to make ready,
so that the log tells which cases could not be slowed. Only this side has NOISEFLOOR_TEST_SLOWDOWN_PERCENT in its environment.
"""

import json
import os
import subprocess
import sys
import threading

program, percent, log, *arguments = sys.argv[1:]


def forward(build, words):
    try:
        for line in sys.stdin.buffer:
            question = json.loads(line)
            if question.get("ask") == "ready":
                problem = question["problem"]
                words.write(f"case {problem['op']}/{problem['problem']}/{question['dtype']}/{question['variant']}\n".encode())
            build.stdin.write(line)
            build.stdin.flush()
        build.stdin.close()
    except BrokenPipeError:  # it ended
        pass


with open(log, "ab", buffering=0) as words:
    environment = os.environ | {"NOISEFLOOR_TEST_SLOWDOWN_PERCENT": percent}
    build = subprocess.Popen([program, *arguments], stdin=subprocess.PIPE, stderr=words, env=environment)
    threading.Thread(target=forward, args=(build, words), daemon=True).start()  # the build may end while no question comes
    code = build.wait()
    if code < 0:  # `ab` tells a build that was killed from one that failed
        os.kill(os.getpid(), -code)
    os._exit(code)  # not waiting for the thread
