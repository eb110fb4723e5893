"""The errors that end the program with a message instead of a traceback."""


class CannotRun(Exception):
    """What was asked for could not be done (exit code 2)."""


class Unsupported(Exception):
    """This op's PyTorch implementation does not cover the problem; becomes a row's reason."""


class BadProblem(CannotRun):
    """A problem record that is not what `noisefloor list problems --format json` prints."""
