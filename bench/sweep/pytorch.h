// PyTorch's rows: which an op has, and the worker that measures them (baselines/pytorch).
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "bench/measure/worker.h"

namespace noisefloor {

// Of torch.compile(mode=max-autotune-no-cudagraphs), which takes 10 to 20 s a row: swept where it is asked for.
inline constexpr const char* kMaxAutotune = "torch_compile_max_autotune";

// Eager and compiled; of attention in eager's place one row per backend of scaled_dot_product_attention, which would
// otherwise choose one of them by itself.
std::vector<ImplementationPtr> pytorch_implementations(std::string_view op);

struct PyTorchOptions {
  int device = 0;             // CUDA's number
  bool max_autotune = false;  // such rows will be asked for
};

// A worker that runs: of NOISEFLOOR_PYTHON, python3, or .venv beside or above the program, the first that has a PyTorch
// which sees the device. Throws LibraryMissing with what each of them lacks.
std::unique_ptr<Worker> start_pytorch(const PyTorchOptions& options);

}  // namespace noisefloor
