#include "tests/fuzz/targets.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "bench/sweep/problem_files.h"
#include "bench/tensors/safetensors.h"
#include "kernels/catalogue.h"
#include "reports/run/run_files.h"
#include "reports/run/sweep_csv.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor::fuzz {
namespace {

void require(bool good) {
  if (!good) std::abort();
}

// The input as a file, for parsers that read one. In memory: a fuzzer reads thousands a second.
class InputFile {
 public:
  explicit InputFile(Input input) : descriptor_(memfd_create("input", MFD_CLOEXEC)) {
    for (std::size_t done = 0; done < input.size();) {
      const ssize_t count = write(descriptor_, input.data() + done, input.size() - done);
      require(count > 0);
      done += static_cast<std::size_t>(count);
    }
  }
  ~InputFile() { close(descriptor_); }
  InputFile(const InputFile&) = delete;
  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

// "m=4096,n=320,act=silu", the text of a problem, for every op.
void problem_text(Input input) {
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  for (const Op& op : catalogue()) {
    std::string canonical;
    try {
      canonical = op.print(op.parse_pairs(split_problem_text(text)));
    } catch (const InvalidInput&) {
      continue;
    }
    // Outside the try: the canonical text of a problem is one.
    require(op.print(op.parse_pairs(split_problem_text(canonical))) == canonical);
  }
}

// A problem file. The input's first line is the op, which is in the file's name; the rest is the file.
void problem_csv(Input input) {
  static const TemporaryFolder folder;
  static const Suite ops = [] {  // what runs them is not compiled for the fuzzers
    std::vector<SuiteEntry> entries;
    for (const Op& op : catalogue()) entries.push_back({&op, {}, nullptr});
    return Suite(std::move(entries));
  }();
  const auto end = std::find(input.begin(), input.end(), '\n');
  const Op* const op = end == input.end() ? nullptr : find_op(std::string(input.begin(), end));
  if (op == nullptr) return;
  const InputFile file(input.subspan(static_cast<std::size_t>(end - input.begin()) + 1));
  const auto link = folder / (op->name + ".csv");
  require(symlink(file.path().c_str(), link.c_str()) == 0);
  try {
    for (const ProblemEntry& entry : load_problems(folder.path(), ops))
      require(entry.op->print(entry.problem) == entry.text && !entry.uses.empty());
  } catch (const InvalidInput&) {
  }
  std::filesystem::remove(link);
}

// What was read can be written, and read as the same.
void sweep_csv(Input input) {
  const InputFile file(input);
  std::vector<SweepRow> rows;
  try {
    rows = read_sweep_csv(file.path());
  } catch (const std::runtime_error&) {
    return;
  }
  for (const SweepRow& row : rows) {
    const auto others = other_columns({row});
    const std::string line = to_csv(row, others), text = sweep_csv_header(others) + line;
    const InputFile again({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
    const auto same = read_sweep_csv(again.path());
    require(same.size() == 1 && to_csv(same[0], others) == line);
  }
}

void samples(Input input) {
  const InputFile file(input);
  try {
    for (const auto& [key, samples] : read_samples(file.path())) {
      std::size_t batched = 0;
      for (const std::size_t batch : samples.cold_batches) batched += batch;
      require(samples.cold_batches.empty() || batched == samples.cold_us.size());
      require(samples.kernels.size() == samples.kernel_counts.size());
      for (const double time : samples.cold_us) require(time > 0);
    }
  } catch (const std::runtime_error&) {
  }
}

void environment(Input input) {
  const InputFile file(input);
  try {
    const RunEnvironment environment = read_environment(file.path());
    require(environment.schema >= 1 && environment.schema <= kRunSchema);
  } catch (const std::runtime_error&) {
  }
}

// A user's tensors.
void safetensors(Input input) {
  const auto bytes = std::as_bytes(input);
  try {
    for (const FileTensor& tensor : parse_safetensors(bytes)) {
      if (tensor.data.empty()) continue;
      require(tensor.data.data() >= bytes.data() &&
              tensor.data.data() + tensor.data.size() <= bytes.data() + bytes.size());
      volatile std::byte ends[] = {tensor.data.front(), tensor.data.back()};  // they are there to be read
      (void)ends;
    }
  } catch (const SafetensorsError&) {
  }
}

}  // namespace

std::span<const Target> targets() {
  // Twice: problems are counted as they come, so their array doubles while it grows.
  static constexpr Target all[] = {
      {"problem_text", problem_text},
      {"problem_csv", problem_csv, 2 * sizeof(ProblemEntry)},
      {"sweep_csv", sweep_csv, sizeof(SweepRow)},
      {"samples", samples},
      {"environment", environment},
      {"safetensors", safetensors},
  };
  return all;
}

const Target& target(const char* name) {
  for (const Target& candidate : targets())
    if (std::strcmp(candidate.name, name) == 0) return candidate;
  std::fprintf(stderr, "no fuzz target '%s'\n", name);
  std::exit(2);
}

}  // namespace noisefloor::fuzz
