// The input as a file, for parsers that read one. In memory: a fuzzer reads thousands a second.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/fuzz/targets.h"

namespace noisefloor::fuzz {

class InputFile {
 public:
  explicit InputFile(Input input) : descriptor_(memfd_create("input", MFD_CLOEXEC)) {
    for (std::size_t done = 0; done < input.size();) {
      const ssize_t count = write(descriptor_, input.data() + done, input.size() - done);
      if (count <= 0) std::abort();
      done += static_cast<std::size_t>(count);
    }
  }
  ~InputFile() { close(descriptor_); }
  InputFile(const InputFile&) = delete;
  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace noisefloor::fuzz
