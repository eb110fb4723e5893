// What counting a set of metrics needs and enabling the profiler does not change: the host object, the image that the
// hardware is configured with, and the number of passes. Includes CUPTI's headers; for the *_cuda.cpp files of this
// folder, and tests of theirs, only.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/counters/counting_costs.h"
#include "bench/counters/cupti_host_object.h"
#include "bench/counters/metrics.h"

namespace noisefloor {

class CounterConfig {
 public:
  // `availability` as CuptiHostObject takes it. Keeps copies of the names. Throws CountersUnavailable, naming the
  // metric that the chip does not have.
  CounterConfig(const std::string& chip, std::vector<std::uint8_t> availability, std::span<const Metric> wanted,
                CountingCosts* costs = nullptr);
  CounterConfig(const CounterConfig&) = delete;
  CounterConfig& operator=(const CounterConfig&) = delete;

  const std::vector<std::string>& names() const { return names_; }          // ours
  const std::vector<std::string>& cupti_names() const { return metrics_; }  // CUPTI's, in the same order
  std::vector<const char*> cupti_pointers() const;                          // as CUPTI takes them
  const std::vector<std::uint8_t>& image() const { return image_; }
  std::size_t passes() const { return passes_; }

  // The values of range 0 of decoded counter data, in the order of the names.
  std::vector<double> evaluate(const std::vector<std::uint8_t>& counter_data);

 private:
  std::vector<std::string> names_;
  std::vector<std::string> metrics_;
  CuptiHostObject host_;
  std::vector<std::uint8_t> image_;
  std::size_t passes_ = 0;
};

// The configuration of `wanted` on a device and a context of it: made at the first request of the process, and the same
// one after that. `costs` gets the steps that this request took.
CounterConfig& counter_config(int device, CUcontext context, std::span<const Metric> wanted,
                              CountingCosts* costs = nullptr);

}  // namespace noisefloor
