"""groupnorm as `noisefloor new-kernel` writes it in Triton, with rows beside it that are each tampered with in one place."""

import re

# Of each row what it replaces, at its last occurrence, in a copy of the kernel and its launch. (rows.cu does the like in CUDA.)
TRITON = {
    "stale": [("# fmt: skip\n", "# fmt: skip\n    kept.append(t.y.clone() if not kept else kept[0])\n    return kept[0]\n")],
    "other_stream": [("    groupnorm[", "    with torch.cuda.stream(torch.cuda.Stream()):\n        groupnorm[")],
    "past_the_end": [("element_ty), inside", "element_ty), (row + steps <= hw) & (lanes < GROUP)")],
    "first_right": [("    groupnorm[", "    kept.append(t)\n    gamma, beta = (t.gamma, t.beta) if len(kept) == 1 else (t.beta, t.gamma)\n    groupnorm["),
                    ("t.gamma, t.beta, t.y", "gamma, beta, t.y")],
}  # fmt: skip
REASONS = {
    "stale": "incorrect: after the warm launches: ",
    "other_stream": "(cuda_error: .*records no kernel|incorrect: .* is nan, expected)",  # what it did is there at once, or is not
    "past_the_end": "incorrect: wrote outside tensor 'y'",
    "first_right": "incorrect: after a (replay of its recorded|second) launch",
}
PROBLEM = "network,n,hw,channels,groups,count\nsmall,1,77,60,5,1\n"


def replaced(text, pairs):
    for old, new in pairs:
        before, found, after = text.rpartition(old)
        assert found, f"new-kernel's groupnorm has no {old!r}"
        text = before + new + after
    return text


def triton(text, names=tuple(TRITON)):
    """A row of each name, behind the right one."""
    kernel = text[text.index("@triton.jit") :]
    for name in names:
        copy = replaced(kernel, TRITON[name]).replace("kept", f"kept_{name}")
        text += f"\n\nkept_{name} = []\n\n\n" + re.sub(r"\bgroupnorm\b", name, copy).replace("def launch(", f"def launch_{name}(")
    return text


def hold_to_reasons(table, names):
    """Rows of a run: no tampered one is right, and the reason fits."""
    found = {row["variant"]: row for row in table}
    for name in names:
        row = found[name]
        assert re.match(REASONS[name], f"{row['status']}: {row['reason']}"), (name, row["status"], row["reason"])
        assert not row["time_cold_us"] and not row["time_warm_us"], name
