"""What an answer may fail by: each becomes the outcome and the reason of a row."""


class CannotRun(Exception):
    """The worker cannot start."""


class Unsupported(Exception):
    """This op's PyTorch implementation does not cover the problem."""


class NotBuilt(Exception):
    """The compiler did not make it."""


class BadQuestion(Exception):
    """Not a question of bench/measure/worker.h."""
