// PyTorch's rows: which an op has, and the worker that measures them (baselines/pytorch).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/measure/worker.h"

namespace noisefloor {

// Eager and compiled; of attention one row per backend of scaled_dot_product_attention, which would otherwise choose
// one of them by itself.
std::vector<ImplementationPtr> pytorch_implementations(std::string_view op);

inline constexpr const char* kTorchCompileModes[] = {"default", "max-autotune-no-cudagraphs"};

struct PyTorchOptions {
  int device = 0;  // CUDA's number
  std::string compile_mode = kTorchCompileModes[0];
};

// A worker that runs: of NOISEFLOOR_PYTHON, python3, or .venv beside or above the program, the first that has a PyTorch
// which sees the device. Throws LibraryMissing with what each of them lacks.
std::unique_ptr<Worker> start_pytorch(const PyTorchOptions& options);

}  // namespace noisefloor
