"""@OP@ in Python: a function to write, as a row of noisefloor's. Its row has no time until `launch` writes the outputs.

noisefloor sweep --plugin @OP@_python.py --ops @OP@ --networks all

@TABLE@

The tensors are NumPy's on a host, those of PyTorch or CuPy where the file imports it. A whole example, in Triton: noisefloor new-kernel groupnorm
"""

op, name = "@OP@", "my_python"


def can_run(problem):
    return True  # it can; else why not: "needs m in multiples of 8"


def launch(problem, t):
    # problem.fields["name"] is a field, t["name"] a tensor; t.get("name") is None where the problem has none.
    raise NotImplementedError("write every element of @OUTPUTS@ here, as in t.name[...] = result")
