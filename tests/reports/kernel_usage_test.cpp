// cuobjdump's resource usage, and kernels against recorded ones.
#include "reports/resources/kernel_usage.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

// As cuobjdump 13 writes it; the first function is in an anonymous namespace, whose mangled name has a hash in it.
constexpr const char* kOutput = R"(
Fatbin elf code:
================
arch = sm_90a
code version = [1,8]
host = linux
compile_size = 64bit
identifier = ../../kernels/gemm/naive.cu

Resource usage:
 Common:
  GLOBAL:0
 Function _ZN10noisefloor41_GLOBAL__N__fcb0a28b_9_clocks_cu_725460f012clock_kernelEPNS0_6SampleEy:
  REG:12 STACK:8 SHARED:1024 LOCAL:0 CONSTANT[0]:544 TEXTURE:0 SURFACE:0 SAMPLER:0

Fatbin elf code:
================
arch = sm_90a
identifier = ../../bench/platform/cuda_kernels.cu

Resource usage:
 Function _Z1fv:
  REG:10 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:552 TEXTURE:0 SURFACE:0 SAMPLER:0
)";

KernelUsage kernel(const std::string& name, long registers, long shared, long stack) {
  return {"sm_90a", "kernels/gemm/naive.cu", name, registers, shared, stack};
}

TEST(KernelUsage, IsReadFromCuobjdump) {
  const auto kernels = parse_resource_usage(kOutput);
  ASSERT_EQ(kernels.size(), 1u) << "kernels of the harness are nobody's variants";
  EXPECT_EQ(kernels[0].arch, "sm_90a");
  EXPECT_EQ(kernels[0].file, "kernels/gemm/naive.cu");
  EXPECT_EQ(kernels[0].kernel,
            "noisefloor::(anonymous namespace)::clock_kernel(noisefloor::(anonymous namespace)::Sample*, unsigned "
            "long long)");
  EXPECT_EQ(kernels[0].registers, 12);
  EXPECT_EQ(kernels[0].shared_bytes, 1024);
  EXPECT_EQ(kernels[0].stack_bytes, 8);
  EXPECT_TRUE(parse_resource_usage("").empty());
  EXPECT_THROW(parse_resource_usage("REG:1 STACK:0 SHARED:0 LOCAL:0"), std::runtime_error);
  EXPECT_THROW(parse_resource_usage("arch = sm_80\n Function f:\n  REG:x STACK:0 SHARED:0 LOCAL:0"),
               std::runtime_error);
  EXPECT_THROW(parse_resource_usage("arch = sm_80\n Function f:\n  REG:1 STACK:0"), std::runtime_error);
}

TEST(KernelUsage, RecordsRoundTrip) {
  const TemporaryFolder folder;
  const KernelRecord record{"13.0.88", {kernel("f<1, 2>(int)", 1, 2, 3), kernel("g", 4, 5, 6)}};
  std::ofstream(folder / "kernels.csv") << to_csv(record);
  EXPECT_EQ(to_csv(read_kernel_record(folder / "kernels.csv")), to_csv(record));
  const std::pair<const char*, const char*> wrong[] = {
      {"a,b\n", "kernels.csv:1: no column 'toolkit'"},
      {"toolkit,arch,file,kernel,shared_bytes,stack_bytes\n13,sm_80,f,k,0,0\n", "kernels.csv:1: no column 'registers'"},
      {"toolkit,arch,file,kernel,registers,shared_bytes,stack_bytes\n", "no kernels in it"},
      {"toolkit,arch,file,kernel,registers,shared_bytes,stack_bytes\n13,sm_80,f,k,-1,0,0\n",
       "kernels.csv:2: column 'registers': '-1' is not a whole number from 0"},
      {"toolkit,arch,file,kernel,registers,shared_bytes,stack_bytes\n13,sm_80,f,k,1,0,0\n12,sm_80,f,l,1,0,0\n",
       "kernels.csv:3: column 'toolkit' is '12', above it is '13'"},
  };
  for (const auto& [text, says] : wrong) {
    std::ofstream(folder / "kernels.csv") << text;
    expect_parts(error_of([&] { return read_kernel_record(folder / "kernels.csv"); }), {says});
  }
}

// What a newer program adds, and an order of its own, leave the file readable.
TEST(KernelUsage, ColumnsAreTakenByName) {
  const TemporaryFolder folder;
  std::ofstream(folder / "kernels.csv") << "stack_bytes,kernel,spills,registers,toolkit,file,arch,shared_bytes\n"
                                           "3,\"f<1, 2>(int)\",many,1,13.0.88,kernels/gemm/naive.cu,sm_90a,2\n";
  const KernelRecord read = read_kernel_record(folder / "kernels.csv");
  EXPECT_EQ(to_csv(read), to_csv({"13.0.88", {kernel("f<1, 2>(int)", 1, 2, 3)}}));
}

TEST(KernelUsage, TellsWorseFromBetter) {
  const KernelRecord recorded{"13.0.88",
                              {kernel("gone", 1, 0, 0), kernel("less", 40, 0, 8), kernel("more", 40, 0, 0),
                               kernel("same", 40, 16, 0), kernel("spills", 40, 0, 0)}};
  const KernelRecord built{"13.0.88",
                           {kernel("less", 40, 0, 0), kernel("more", 41, 0, 0), kernel("new", 9, 0, 0),
                            kernel("same", 40, 16, 0), kernel("spills", 32, 0, 16)}};
  const KernelChanges changes = kernel_changes(recorded, built);
  ASSERT_EQ(changes.worse.size(), 2u);
  EXPECT_EQ(changes.worse[0].after.kernel, "spills") << "fewer registers, but it spills";
  EXPECT_EQ(changes.worse[1].after.kernel, "more");
  EXPECT_EQ(changes.better.size(), 1u);
  EXPECT_EQ(changes.same, 1u);
  ASSERT_EQ(changes.gone.size(), 1u);
  ASSERT_EQ(changes.added.size(), 1u);
  const std::string text = kernel_changes_text(changes);
  expect_parts(text, {"spills: registers 40 -> 32, shared bytes 0, stack bytes 0 -> 16",
                      "4 kernels: 2 worse, 1 better, 1 as recorded; 1 gone, 1 new"});
}

TEST(KernelUsage, ComparesOneCompilerAndArchitecture) {
  const KernelRecord recorded{"13.0.88", {kernel("f", 1, 0, 0)}};
  EXPECT_THROW(kernel_changes(recorded, {"12.6.20", {kernel("f", 1, 0, 0)}}), std::runtime_error);
  KernelUsage other = kernel("f", 1, 0, 0);
  other.arch = "sm_80";
  EXPECT_THROW(kernel_changes(recorded, {"13.0.88", {other}}), std::runtime_error);
  EXPECT_EQ(kernel_changes(recorded, {"13.0.88", {other, kernel("f", 1, 0, 0)}}).same, 1u) << "sm_80 is not recorded";
}

}  // namespace
}  // namespace noisefloor
