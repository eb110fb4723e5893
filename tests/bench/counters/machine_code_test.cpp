// What a change of a kernel's source does to the fingerprints of machine code: compiled here, where there is an nvcc.
#include "bench/counters/machine_code.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

using Codes = std::map<std::string, std::uint64_t>;

class MachineCode : public testing::Test {
 protected:
  TemporaryFolder folder;
  std::vector<std::byte> bytes;  // of the last one

  void SetUp() override {
    if (nvcc().empty()) GTEST_SKIP() << "no nvcc";
  }
  static std::string nvcc() {
    if (std::system("command -v nvcc > /dev/null 2>&1") == 0) return "nvcc";
    return std::filesystem::exists("/usr/local/cuda/bin/nvcc") ? "/usr/local/cuda/bin/nvcc" : "";
  }
  Codes compiled(const std::string& source) {
    const std::filesystem::path file = folder.path() / "kernels.cu", cubin = folder.path() / "kernels.cubin";
    std::ofstream(file) << source;
    const std::string command =
        nvcc() + " -std=c++17 -arch=sm_90a -cubin -lineinfo -o '" + cubin.string() + "' '" + file.string() + "'";
    EXPECT_EQ(std::system(command.c_str()), 0);
    std::ifstream stream(cubin, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(stream), {});
    bytes.assign(reinterpret_cast<const std::byte*>(text.data()),
                 reinterpret_cast<const std::byte*>(text.data()) + text.size());
    return machine_code_of(bytes);
  }
};

// The two kernels, of which the second calls a function that is not inlined.
std::string source(const std::string& scale, const std::string& in_function = "3.f", const std::string& before = "") {
  return before + "__device__ __noinline__ float twisted(float x) { return x * " + in_function + "; }\n" +
         "__global__ void scaled(float* x) { x[threadIdx.x] *= " + scale + "; }\n" +
         "__global__ void other(float* x) { x[threadIdx.x] = twisted(x[threadIdx.x + 1]); }\n";
}

TEST_F(MachineCode, ChangesWhereWhatRunsChanges) {
  const std::string scaled = "_Z6scaledPf", other = "_Z5otherPf";
  const Codes before = compiled(source("2.f"));
  ASSERT_EQ(before.size(), 2u);
  EXPECT_NE(before.at(scaled), before.at(other));
  EXPECT_EQ(compiled(source("2.f", "3.f", "// A comment,\n// of two lines.\n")), before);

  const Codes constant = compiled(source("5.f"));
  EXPECT_NE(constant.at(scaled), before.at(scaled));
  EXPECT_EQ(constant.at(other), before.at(other)) << "only what uses it";

  EXPECT_NE(compiled(source("2.f", "4.f")).at(other), before.at(other)) << "what it calls is its code";
}

TEST_F(MachineCode, DamagedFilesAreRefusedOrRead) {
  (void)compiled(source("2.f"));
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::byte> damaged = bytes;
    if (i % 2 == 0) damaged.resize(random() % damaged.size());
    for (int change = 0; change < 4 && !damaged.empty(); ++change)
      damaged[random() % std::min<std::size_t>(damaged.size(), i % 4 == 1 ? 64 : damaged.size())] =
          static_cast<std::byte>(random());
    try {
      (void)machine_code_of(damaged);
    } catch (const std::runtime_error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace noisefloor
