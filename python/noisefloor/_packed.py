"""What a variant lays out of a convolution's weights for `patch`."""

import torch

from noisefloor._operators import prepare

NOMINAL = 64  # height and width by which a convolution is judged and its weights are prepared; they do not follow it


class Packed:
    """Weights as a variant reads them on a GPU: summed behind an upsample, padded where the channels are no multiple of 8.

    Each call lays them out anew, in the same memory: PyTorch does not count what is written through `.data`, and to compare takes as long. Nothing of
    that is in a CUDA graph, which reads what the last call outside of one left there.
    """

    def __init__(self, conv, name, upsample):
        w = conv.weight.detach().permute(0, 2, 3, 1)
        made = prepare("conv2d", (1, NOMINAL, NOMINAL, w.shape[3]), w, stride=conv.stride[0], pad=conv.padding[0], upsample=upsample)
        self.name, self.arguments, self.of = name, {"variant": made.variant, "prepared": made.memory}, version(conv.weight)

    @staticmethod
    def serves(weight):
        """On the CPU each call lays weights out in scratch memory."""
        return weight.is_cuda

    def arguments_for(self, weight):
        if not torch.compiler.is_compiling() and torch.cuda.is_current_stream_capturing() and self.of != version(weight):
            raise ValueError(f"the weights of '{self.name}' changed since the last call: call the network once before a CUDA graph captures it")
        return self.arguments

    def was_made_of(self, weight):
        """Behind a call that returned."""
        if not torch.compiler.is_compiling() and not torch.cuda.is_current_stream_capturing():
            self.of = version(weight)


def version(weight):
    """Another one when it was written to, but not through `.data`, or is another one's memory."""
    return weight.data_ptr(), None if weight.is_inference() else weight._version
