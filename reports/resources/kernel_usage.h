// What every kernel of a build takes, read from its machine code with no GPU, and held to a recorded file.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace noisefloor {

struct KernelUsage {
  std::string arch;       // "sm_90a"
  std::string file;       // "kernels/gemm/naive.cu"
  std::string kernel;     // demangled, with its template arguments
  long registers = 0;     // per thread
  long shared_bytes = 0;  // static, per block; what a launch adds at run time is not in the machine code
  long stack_bytes = 0;   // per thread: spills, and arrays indexed at run time

  std::string key() const { return arch + " " + file + " " + kernel; }
};

// The output of cuobjdump --dump-resource-usage; files outside kernels/ are left out. Sorted by key. Throws
// std::runtime_error naming the line that it cannot read.
std::vector<KernelUsage> parse_resource_usage(std::string_view text);

// kernels.csv: `toolkit,arch,file,kernel,registers,shared_bytes,stack_bytes`. It is read by name: columns in any order,
// and others passed over.
struct KernelRecord {
  std::string toolkit;  // CUDA's version, which decides over register allocation: "13.0.88"
  std::vector<KernelUsage> kernels;
};
std::set<std::string> architectures(const KernelRecord& record);
std::string to_csv(const KernelRecord& record);
KernelRecord read_kernel_record(const std::filesystem::path& file);  // throws std::runtime_error: file, line, column

struct KernelChanges {
  struct Change {
    KernelUsage before, after;
  };
  std::vector<Change> worse;   // more registers, shared memory or stack, whatever else got less
  std::vector<Change> better;  // less of something, more of nothing
  std::vector<KernelUsage> gone, added;
  std::size_t same = 0;
};
// Of the architectures that both have. Throws std::runtime_error where there is none, or the toolkits differ.
KernelChanges kernel_changes(const KernelRecord& recorded, const KernelRecord& built);
// One line a kernel, worst first.
std::string kernel_changes_text(const KernelChanges& changes);

}  // namespace noisefloor
