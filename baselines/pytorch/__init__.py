"""PyTorch's rows of a sweep: the same problems, timed the same way, appended to the same run folder."""
