"""PyTorch's side of a sweep: the same problems, made, verified and timed where the program asks."""
