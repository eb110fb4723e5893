// CUPTI's profiler host library behind one class: metric names to a configuration, counter data to values. Needs no
// GPU. Includes CUPTI's headers; for the *_cuda.cpp files of this folder only.
#pragma once

#include <cupti_profiler_host.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace noisefloor {

// A parameter block with the size field by which CUPTI knows its version.
template <class Params>
Params sized_params(std::size_t size) {
  Params params{};
  params.structSize = size;
  return params;
}
#define NOISEFLOOR_CUPTI_PARAMS(type) ::noisefloor::sized_params<type>(type##_STRUCT_SIZE)

void check_cupti(CUptiResult result, const char* call);  // throws CountersUnavailable

class CuptiHostObject {
 public:
  // `availability` is the image of the counters that a device offers to this user, or empty. Throws
  // CountersUnavailable.
  explicit CuptiHostObject(const std::string& chip, std::vector<std::uint8_t> availability = {});
  ~CuptiHostObject();
  CuptiHostObject(const CuptiHostObject&) = delete;
  CuptiHostObject& operator=(const CuptiHostObject&) = delete;

  bool knows(const char* metric);
  // Adds metrics and returns the image that the target side is configured with. To be called once.
  std::vector<std::uint8_t> configure(std::vector<const char*> metrics);
  static std::size_t passes(std::vector<std::uint8_t>& config);
  // The values of `metrics` in range `range` of decoded counter data.
  std::vector<double> evaluate(const std::vector<std::uint8_t>& counter_data, std::size_t range,
                               std::vector<const char*> metrics);

 private:
  std::vector<std::uint8_t> availability_;  // CUPTI keeps a pointer to it, not a copy
  CUpti_Profiler_Host_Object* object_ = nullptr;
};

}  // namespace noisefloor
