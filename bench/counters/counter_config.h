// What counting a set of metrics needs and enabling the profiler does not change: CUPTI's host object, the image that
// the hardware is configured with, and the number of passes. Includes CUPTI's headers; for the *_cuda.cpp files of this
// folder, and tests of theirs, only.
#pragma once

#include <cuda.h>
#include <cupti_profiler_host.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/counters/range_profiler.h"

namespace noisefloor {

class CounterConfig {
 public:
  // Needs no GPU. `availability` is the image of the counters that a device offers to this user, or empty. `wanted`
  // must outlive it. Throws CountersUnavailable where CUPTI does not know the chip, or the chip not a metric, naming
  // it.
  CounterConfig(const std::string& chip, std::vector<std::uint8_t> availability,
                std::span<const Metric> wanted = kRowMetrics);

  std::vector<const char*>& metrics() { return metrics_; }  // CUPTI's names, as it takes them
  const std::vector<std::uint8_t>& image() const { return image_; }
  std::size_t passes() const { return passes_; }

  // The values of range 0 of decoded counter data, by Metric::name. Throws CountersUnavailable.
  std::map<std::string, double> evaluate(const std::vector<std::uint8_t>& counter_data);

 private:
  struct Deinitialize {
    void operator()(CUpti_Profiler_Host_Object* object) const;
  };
  std::vector<std::uint8_t> availability_;  // CUPTI keeps a pointer to it, not a copy
  std::unique_ptr<CUpti_Profiler_Host_Object, Deinitialize> object_;
  std::span<const Metric> wanted_;
  std::vector<const char*> metrics_;
  std::vector<std::uint8_t> image_;
  std::size_t passes_ = 0;
};

// That of rows on a device and a context of it: made at the first request of the process, and the same one after that.
// A request that throws leaves nothing behind: what was lacking may be there at the next one.
CounterConfig& row_counter_config(int device, CUcontext context);

}  // namespace noisefloor
