"""A worker as bench/measure/worker.h asks one, without PyTorch: python3 stub_worker.py [QUESTION BEHAVIOUR]

It answers every question well, but QUESTION (start, ready, cold, ...) as BEHAVIOUR says. "stale": launches of that question leave the outputs as
they are. What it is asked goes to $STUB_LOG."""

import json
import os
import subprocess
import sys
import time

question_of_interest, behaviour = (*sys.argv[1:], "", "")[:2]
poisoned = full = False
RIGHT = {"errors": [{"max": 0.0, "l2": 0.0}]}
log = open(os.environ["STUB_LOG"], "a", encoding="utf-8")


def misbehave():
    global full
    if behaviour == "die":
        print("first words\nlast words", file=sys.stderr, flush=True)
        os._exit(7)
    if behaviour == "kill":
        os.kill(os.getpid(), 9)
    if behaviour == "hang":
        time.sleep(1000)
    if behaviour == "loop":  # deaf to SIGTERM, as its child is
        child.wait()
    if behaviour == "orphan":  # its child holds its output
        if os.fork():
            os._exit(7)
        time.sleep(1000)
    if behaviour == "full" and not full:  # of memory, the first time
        full = True
        return json.dumps({"failed": "out_of_memory", "reason": "no room"})
    if behaviour == "full":
        return json.dumps(RIGHT)
    if behaviour == "garbage":
        return "gar\tbage"
    return behaviour  # the answer itself


def answer(asked, number):
    global poisoned
    stale = asked == question_of_interest and behaviour == "stale"
    if asked == question_of_interest and not stale:
        return misbehave()
    if asked in ("poison", "cold", "warm"):
        poisoned = asked == "poison" or (poisoned and stale)
    if asked == "judge" and poisoned:
        return json.dumps({"errors": [{"max": None, "l2": None}]})
    if asked == "start":
        return json.dumps({"facts": {"stub": "1.0"}})
    if asked in ("cold", "warm"):
        return json.dumps({"us": [5.0 if asked == "cold" else 4.0] * number})
    if asked == "ready":
        return json.dumps({**RIGHT, "peak_memory_bytes": 4096})
    return json.dumps(RIGHT if asked in ("judge", "replay") else {})


def numbered(text, number):
    try:
        answer = json.loads(text)
    except ValueError:
        return text
    return json.dumps({"number": number, **answer}) if isinstance(answer, dict) else text


if behaviour == "loop":  # it stands before anybody waits for an answer
    child = subprocess.Popen(["sh", "-c", "trap '' TERM; echo; sleep 1000"], stdout=subprocess.PIPE)
    child.stdout.readline()
    print("child", child.pid, file=log, flush=True)
print(answer("start", 0), flush=True)
for line in sys.stdin:
    question = json.loads(line)
    asked = question["ask"]
    print(asked, question.get("variant", ""), question.get("problem", {}).get("problem", ""), file=log, flush=True)
    print(numbered(answer(asked, question.get("samples", 0)), question["number"]), flush=True)
