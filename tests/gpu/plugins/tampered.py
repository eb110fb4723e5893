"""groupnorm as `noisefloor new-kernel` writes it in CUDA and Triton, with rows beside it that are each tampered with in one place."""

import re

# Of each row what it replaces, at its last occurrence, in a copy of the kernel and its launch.
CUDA = {
    "stale": [("  return cudaGetLastError();", """\
  static void* kept = nullptr;
  const size_t bytes = sizeof(T) * integer("n") * integer("hw") * channels;
  const auto stream = static_cast<cudaStream_t>(call->stream);
  if (kept == nullptr && cudaMalloc(&kept, bytes) == cudaSuccess)
    cudaMemcpyAsync(kept, data<T>(p, "y"), bytes, cudaMemcpyDeviceToDevice, stream);
  return cudaMemcpyAsync(data<T>(p, "y"), kept, bytes, cudaMemcpyDeviceToDevice, stream);""")],
    "other_stream": [("  groupnorm<<<", """\
  static cudaStream_t side = nullptr;
  if (side == nullptr) cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
  groupnorm<<<"""), ("static_cast<cudaStream_t>(call->stream)", "side")],
    "past_the_end": [("    y[place(i)] = T(value);", "    y[place(i)] = T(value);\n    if (i >= elements - group) y[place(i + group)] = T(value);")],
    "first_right": [("  groupnorm<<<", "  static int calls = 0;\n  const bool first = calls++ == 0;\n  groupnorm<<<"),
                    ('(p, "gamma")', '(p, first ? "gamma" : "beta")')],
}  # fmt: skip
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


def cuda(text):
    """A row of each name; the right one is not among them."""
    start, end = text.index("// x and y are"), text.index("const char* can_run(")
    kernel, launcher = text[start:end].split("int launch(void*")
    copies = "".join(f"namespace {name} {{\n{replaced(kernel, pairs)}int launch(void*{launcher}}}  // namespace {name}\n\n" for name, pairs in CUDA.items())
    rows = f"""\
  static noisefloor_plugin rows[] = {{{", ".join(["row"] * len(CUDA))}}};
  if (index >= {len(CUDA)}) return nullptr;
  rows[index].name = (const char*[]){{{", ".join(f'"{name}"' for name in CUDA)}}}[index];
  rows[index].launch = (decltype(row.launch)[]){{{", ".join(f"{name}::launch" for name in CUDA)}}}[index];
  return &rows[index];"""
    return replaced(text[:start] + copies + text[end:], [("    mine.launch = launch;\n", ""), ("  return index == 0 ? &row : nullptr;", rows)])


def triton(text, names=tuple(TRITON)):
    """As above, behind the right one."""
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
