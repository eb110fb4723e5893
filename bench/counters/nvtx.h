// An NVTX range named by its case, so that Nsight Systems and Nsight Compute show and select cases by the text of the
// row.
#pragma once

#include <string>

#if defined(NOISEFLOOR_HAS_CUDA)
#include <nvtx3/nvToolsExt.h>
#endif

namespace noisefloor {

// Open from construction to destruction, on this thread. Costs a few nanoseconds without a profiler; nothing in host
// builds.
class NvtxRange {
 public:
#if defined(NOISEFLOOR_HAS_CUDA)
  explicit NvtxRange(const std::string& name) {
    nvtxRangePushA(name.c_str());
  }
  ~NvtxRange() {
    nvtxRangePop();
  }
#else
  explicit NvtxRange(const std::string&) {}
#endif
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
};

}  // namespace noisefloor
