"""A build as `noisefloor ab` starts it, whose times are scripted: python3 stub_build.py SCRIPT worker ...

SCRIPT is JSON: {"us": base time, "facts": {...}, "fail": {case: answer}, "die": case, "judge": answer}; a case is its problem's text.
"""

import json
import os
import sys

script = json.loads(sys.argv[1])
FACTS = {"commit": "c0ffee", "device": "a host", "gpu_uuid": "", "arch": "x86-64", "platform": "host"}
RIGHT = {"errors": [{"max": 0.0, "l2": 0.0}]}
if sys.argv[2:3] != ["worker"]:
    sys.exit(f"noisefloor: unknown command '{sys.argv[2]}'")


def answer(question):
    ask = question["ask"]
    if ask == "ready":
        problem = question["problem"]["problem"]
        if problem == script.get("die"):
            print("a fault of mine", file=sys.stderr, flush=True)
            os._exit(139)
        return script.get("fail", {}).get(problem, RIGHT)
    if ask in ("cold", "warm"):
        return {"us": [script["us"]] * question["samples"]}
    return script.get("judge", RIGHT) if ask == "judge" else {}


print(json.dumps({"facts": {**FACTS, **script.get("facts", {})}}), flush=True)
for line in sys.stdin:
    question = json.loads(line)
    print(json.dumps({**answer(question), "number": question["number"]}), flush=True)
