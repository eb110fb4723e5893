// The parsers of everything that comes from outside, each as one function of a file's bytes. libFuzzer makes up the
// bytes (tools/fuzz); the ordinary tests replay the corpus.
#pragma once

#include <cstdint>
#include <span>

namespace noisefloor::fuzz {

using Input = std::span<const std::uint8_t>;

struct Target {
  const char* name;
  // Parses; what the parser refuses with an exception of its own is fine. Anything else, and a parsed value that does
  // not survive being written and parsed again, ends the process.
  void (*run)(Input input);
  // Bytes of the struct that one line of a table becomes: the result's own array may take that much a line, which is
  // more than four times a line that is mostly commas.
  std::size_t row_bytes = 0;
};

std::span<const Target> targets();
const Target& target(const char* name);  // ends the process where there is none

// Runs a target, and ends the process when one allocation inside was larger than four times the input plus kSmall (and
// row_bytes for each line).
void run_watched(const Target& target, Input input);

// What does not grow with the input: iostream's buffers (8 KiB), the fields of one CSV line (at most 256 strings of 32
// bytes, doubled while they grow: 16 KiB), the arguments of one command line in env.json (1,024 strings: 32 KiB), its
// lines (1,000 of 24 bytes, doubled: 48 KiB).
inline constexpr std::size_t kSmall = 64 * 1024;

}  // namespace noisefloor::fuzz
