// A user's tensors.
#include "bench/tensors/safetensors.h"

#include <cstdlib>

#include "tests/fuzz/targets.h"

namespace noisefloor::fuzz {

void safetensors(Input input) {
  const auto bytes = std::as_bytes(input);
  try {
    for (const FileTensor& tensor : parse_safetensors(bytes)) {
      if (tensor.data.empty()) continue;
      if (tensor.data.data() < bytes.data() || tensor.data.data() + tensor.data.size() > bytes.data() + bytes.size())
        std::abort();
      // Every byte is there to be read.
      volatile std::byte ends[] = {tensor.data.front(), tensor.data.back()};
      (void)ends;
    }
  } catch (const SafetensorsError&) {
  }
}

}  // namespace noisefloor::fuzz
