// One fuzzer a target; NOISEFLOOR_FUZZ_TARGET is its name.
#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const noisefloor::fuzz::Target& target = noisefloor::fuzz::target(NOISEFLOOR_FUZZ_TARGET);
  noisefloor::fuzz::run_watched(target, {data, size});
  return 0;
}
