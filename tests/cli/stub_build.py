"""A build as `noisefloor ab` starts it, whose times are scripted: python3 stub_build.py SCRIPT worker ...

SCRIPT is JSON: {"us": base time, "facts": {...}, "fail": {case: answer}, "die": case, "kill": case, "judge": answer,
"us_of": {case: time, or one for each start in turn}, "cold_us": cold time of all, "says": {case: words on standard error}, "starts": a file that counts its starts, "most_starts": then it fails, "changes_at": then it is of another commit,
"spared_at": starts at which nothing kills it, "sleep": {case: seconds}, "mhz": behind warm times, "answers": {ask: answer}}; a case is its problem's text.
"""

import json
import os
import sys
import time

script = json.loads(sys.argv[1])
FACTS = {"commit": "c0ffee", "device": "a host", "gpu_uuid": "", "arch": "x86-64", "platform": "host"}
BASE_US = script["us"]
RIGHT = {"errors": [{"max": 0.0, "l2": 0.0}]}
if sys.argv[2:3] != ["worker"]:
    sys.exit(f"noisefloor: unknown command '{sys.argv[2]}'")


def answer(question):
    ask = question["ask"]
    if ask in script.get("answers", {}):
        return script["answers"][ask]
    if ask in ("ready", "signature"):
        problem = question["problem"]
        problem = problem if isinstance(problem, str) else problem["problem"]  # a side of `ab --python` gets the text alone
        fails = script.get("fail", {}).get(problem, RIGHT)
        if ask == "signature":
            return fails if "failed" in fails else {}
        us = script.get("us_of", {}).get(problem, BASE_US)
        script["us"] = us[starts % len(us)] if isinstance(us, list) else us
        print(script.get("says", {}).get(problem, ""), end="", file=sys.stderr, flush=True)
        time.sleep(script.get("sleep", {}).get(problem, 0))
        if problem == script.get("kill") and starts not in script.get("spared_at", []):
            os.kill(os.getpid(), 9)
        if problem == script.get("die"):
            print("a fault of mine", file=sys.stderr, flush=True)
            os._exit(139)
        return fails
    if ask in ("cold", "warm"):
        times = {"us": [script.get("cold_us", script["us"]) if ask == "cold" else script["us"]] * question["samples"]}
        return {**times, "mhz": script["mhz"]} if ask == "warm" and "mhz" in script else times
    return script.get("judge", RIGHT) if ask == "judge" else {}


starts = 0
if "starts" in script:
    with open(script["starts"], "a+", encoding="utf-8") as file:
        file.write("x")
        file.seek(0)
        starts = len(file.read())
if starts > script.get("most_starts", starts):
    sys.exit(2)
if starts >= script.get("changes_at", starts + 1):
    FACTS["commit"] = "decaf"
print(json.dumps({"facts": {**FACTS, **script.get("facts", {})}}), flush=True)
for line in sys.stdin:
    question = json.loads(line)
    print(json.dumps({**answer(question), "number": question["number"]}), flush=True)
