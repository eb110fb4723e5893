// A problem file. The input's first line is the op, which is in the file's name; the rest is the file.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "bench/sweep/problem_files.h"
#include "kernels/catalogue.h"
#include "tests/fuzz/input_file.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor::fuzz {

// The ops alone: what runs them is not compiled for the fuzzers.
static const Suite& ops() {
  static const Suite all = [] {
    std::vector<SuiteEntry> entries;
    for (const Op& op : catalogue()) entries.push_back({&op, {}, nullptr});
    return Suite(std::move(entries));
  }();
  return all;
}

void problem_csv(Input input) {
  static const TemporaryFolder folder;
  const auto end = std::find(input.begin(), input.end(), '\n');
  const Op* const op = end == input.end() ? nullptr : find_op(std::string(input.begin(), end));
  if (op == nullptr) return;
  const InputFile file(input.subspan(static_cast<std::size_t>(end - input.begin()) + 1));
  const auto link = folder / (op->name + ".csv");
  if (symlink(file.path().c_str(), link.c_str()) != 0) std::abort();
  try {
    for (const ProblemEntry& entry : load_problems(folder.path(), ops()))
      if (entry.op->print(entry.problem) != entry.text || entry.uses.empty()) std::abort();
  } catch (const InvalidInput&) {
  }
  std::filesystem::remove(link);
}

}  // namespace noisefloor::fuzz
