// The numbers of a sampling loop that depend on its schedule alone, computed once and kept on the device.
#pragma once

#include <cstddef>
#include <span>

#include "bench/pipeline/sampling_steps.h"
#include "bench/platform/platform.h"
#include "networks/network.h"

namespace noisefloor::pipeline {

class StepTables {
 public:
  StepTables(Platform& platform, const networks::Network& network, const SamplingOptions& options,
             std::span<const StepPlan> steps);
  // What one allocates.
  static std::size_t bytes(const networks::Network& network, const SamplingOptions& options);

  // Coefficients of all steps [steps, kRowLength], of the op sampler_step.
  void* rows(sampler_step::Half half) const;
  // A pair of levels an image (of guidance: a frame), of the op q_sample.
  void* churn(std::size_t step) const;
  void* older(std::size_t step, std::size_t k) const;  // what the k-th step before the one before kept
  void* guidance() const { return guidance_.data(); }
  // What a call of the network is told, a number an image of the call.
  void* sigmas(std::size_t call) const;
  void* timesteps(std::size_t call) const;  // of networks that take them

 private:
  std::size_t levels_bytes_, told_bytes_, older_a_step_;
  Buffer rows_, second_rows_, churn_, older_, guidance_, sigmas_, timesteps_;
};

}  // namespace noisefloor::pipeline
