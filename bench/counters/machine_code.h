// The machine code of kernels, as the driver loads it: two builds of which it is the same run the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace noisefloor {

// By a kernel's mangled name, a fingerprint of its instructions and constants, and of what all kernels of its module
// may call or read. Names, comments and line numbers have no part in it. `cubin`: an ELF file of 64 bits, as nvcc makes
// it and the driver loads it. Throws std::runtime_error where it is none, or damaged.
std::map<std::string, std::uint64_t> machine_code_of(std::span<const std::byte> cubin);

}  // namespace noisefloor
