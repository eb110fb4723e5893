// Programmatic dependent launch: a variant launched behind a kernel that writes all its tensors late, and lets it start
// early, must wait for that kernel before it reads its inputs or writes its outputs.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <vector>

#include "kernels/device/launch.cuh"
#include "kernels/ptx/griddepcontrol.cuh"
#include "tests/support/catalogue_cases.h"
#include "tests/support/first_gpu.h"

namespace noisefloor {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 16;  // leaves most of the device to the launch behind
constexpr unsigned long long kDelayNs = 200'000;

// One tensor: what the late kernel leaves in it.
struct Restored {
  unsigned char* to;
  const unsigned char* from;
  std::size_t bytes;
};

__device__ unsigned long long now_ns() {
  unsigned long long ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

// Lets its dependents start, waits far longer than any of the small problems takes, then writes.
__global__ void late_kernel(const Restored* tensors, int count) {
#if __CUDA_ARCH__ >= 900
  ptx::griddepcontrol_launch_dependents();
#endif
  const unsigned long long end = now_ns() + kDelayNs;
  while (now_ns() < end) __nanosleep(1000);
  for (int t = 0; t < count; ++t)
    for (std::size_t i = blockIdx.x * kThreads + threadIdx.x; i < tensors[t].bytes; i += kBlocks * kThreads)
      tensors[t].to[i] = tensors[t].from[i];
}

__global__ void copy_kernel(const unsigned char* from, unsigned char* to, bool wait) {
#if __CUDA_ARCH__ >= 900
  if (wait) ptx::griddepcontrol_wait();
#endif
  to[threadIdx.x] = *reinterpret_cast<const volatile unsigned char*>(from + threadIdx.x);
}

__global__ void copy_all_kernel(const unsigned char* from, unsigned char* to, std::size_t bytes) {
#if __CUDA_ARCH__ >= 900
  ptx::griddepcontrol_wait();
#endif
  for (std::size_t i = blockIdx.x * kThreads + threadIdx.x; i < bytes; i += kBlocks * kThreads) to[i] = from[i];
}

// Behind the launch ahead, which it does not wait for.
template <class Kernel, class... Arguments>
Status launch_early(unsigned blocks, Kernel* kernel, Arguments... arguments) {
  const LaunchShape shape{.grid = blocks, .block = kThreads, .programmatic = true};
  return launch_kernel("launch_early", kernel, shape, device().context().stream, arguments...);
}

// Old contents under the late kernel: NaN in every floating-point type.
constexpr unsigned char kStale = 0xFF;

void launch_late(const std::vector<Restored>& tensors, const Buffer& table) {
  device().upload(table.data(), tensors.data(), tensors.size() * sizeof(Restored));
  late_kernel<<<kBlocks, kThreads, 0, device().context().stream>>>(static_cast<const Restored*>(table.data()),
                                                                   static_cast<int>(tensors.size()));
  ASSERT_EQ(cudaGetLastError(), cudaSuccess);
}

// The test itself: a kernel that does not wait sees the old contents, one that does the new.
TEST(ProgrammaticLaunch, OverlapsAndIsSeenToOverlap) {
  if (device().description().info.compute_capability < 90) GTEST_SKIP() << "needs sm_90";
  const Buffer from(device(), kThreads), middle(device(), kThreads), to(device(), kThreads);
  const Buffer table(device(), sizeof(Restored));
  // Loading a kernel at its first launch would wait for the late one.
  copy_kernel<<<1, kThreads, 0, device().context().stream>>>(static_cast<const unsigned char*>(from.data()),
                                                             static_cast<unsigned char*>(to.data()), true);
  device().synchronize();
  for (const bool wait : {false, true}) {
    device().fill_bytes(from.data(), 7, kThreads);
    device().fill_bytes(middle.data(), kStale, kThreads);
    device().synchronize();
    launch_late({{static_cast<unsigned char*>(middle.data()), static_cast<unsigned char*>(from.data()), kThreads}},
                table);
    ASSERT_TRUE(launch_early(1, copy_kernel, static_cast<const unsigned char*>(middle.data()),
                             static_cast<unsigned char*>(to.data()), wait)
                    .ok());
    device().synchronize();
    std::vector<unsigned char> seen(kThreads);
    device().download(seen.data(), to.data(), kThreads);
    EXPECT_EQ(seen, std::vector<unsigned char>(kThreads, wait ? 7 : kStale)) << "wait " << wait;
  }
}

// Lets its dependents start, and only after a while writes: from block 0, so that caches of other SMs are not its own.
__global__ void late_words(unsigned* words, unsigned value) {
#if __CUDA_ARCH__ >= 900
  ptx::griddepcontrol_launch_dependents();
#endif
  const unsigned long long end = now_ns() + kDelayNs;
  while (now_ns() < end) __nanosleep(1000);
  words[threadIdx.x] = value;
}

__device__ unsigned load_read_only(const unsigned* at) {
  unsigned word;
  asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(word) : "l"(at) : "memory");
  return word;
}
__device__ unsigned load_cached(const unsigned* at) {
  unsigned word;
  asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(word) : "l"(at) : "memory");
  return word;
}

struct Seen {
  unsigned before, read_only, cached;
};

// Brings the old words into L1, waits, and reads them again.
__global__ void read_around_wait(const unsigned* words, Seen* seen) {
  Seen mine{};
  mine.before = load_read_only(words + threadIdx.x) | load_cached(words + threadIdx.x);
#if __CUDA_ARCH__ >= 900
  ptx::griddepcontrol_wait();
#endif
  mine.read_only = load_read_only(words + threadIdx.x);
  mine.cached = load_cached(words + threadIdx.x);
  seen[blockIdx.x * kThreads + threadIdx.x] = mine;
}

// PTX promises what read-only loads see only of memory that nobody writes while the kernel lives, and a kernel that is
// launched programmatically lives before it waits. Kernels of ours read activations that way after the wait (residuals,
// rows of small products), so that the wait drops stale lines of that path, too, is held here.
TEST(ProgrammaticLaunch, WaitShowsWhatWasWrittenAlsoToReadOnlyLoads) {
  if (device().description().info.compute_capability < 90) GTEST_SKIP() << "needs sm_90";
  const auto blocks = static_cast<unsigned>(4 * device().description().info.sm_count);
  const Buffer words(device(), kThreads * sizeof(unsigned)), table(device(), blocks * kThreads * sizeof(Seen));
  constexpr unsigned kRounds = 8;
  for (unsigned round = 0; round <= kRounds; ++round) {  // the first loads the kernels
    const unsigned old_value = 2 * round + 1, new_value = old_value + 1;
    const std::vector<unsigned> filled(kThreads, old_value);
    device().upload(words.data(), filled.data(), kThreads * sizeof(unsigned));
    late_words<<<1, kThreads, 0, device().context().stream>>>(static_cast<unsigned*>(words.data()), new_value);
    ASSERT_EQ(cudaGetLastError(), cudaSuccess);
    ASSERT_TRUE(launch_early(blocks, read_around_wait, static_cast<const unsigned*>(words.data()),
                             static_cast<Seen*>(table.data()))
                    .ok());
    device().synchronize();
    std::vector<Seen> seen(std::size_t{blocks} * kThreads);
    device().download(seen.data(), table.data(), seen.size() * sizeof(Seen));
    std::size_t early = 0, stale_read_only = 0, stale_cached = 0;
    for (const Seen& thread : seen) {
      early += thread.before != new_value;  // perhaps older than old_value: L1 is not asked to be new before the wait
      stale_read_only += thread.read_only != new_value;
      stale_cached += thread.cached != new_value;
    }
    if (round > 0) {
      EXPECT_GT(early, seen.size() / 2) << "the second kernel did not start early";
    }
    EXPECT_EQ(stale_read_only, 0u) << "of " << early << " that had read old words";
    EXPECT_EQ(stale_cached, 0u);
  }
}

// Leaves stale bytes in all tensors but those of `constant`, a bit each, and returns what the late kernel restores from
// `saved`; nothing where it would take the late kernel's few blocks long.
std::vector<Restored> take_away(Fixture& fixture, std::vector<Buffer>& saved, std::uint64_t constant = 0) {
  constexpr std::size_t kLargest = std::size_t{16} << 20;
  std::vector<Restored> tensors;
  for (const TensorSpec& spec : fixture.specs())
    if (spec.bytes() > kLargest) return tensors;
  for (std::size_t i = 0; i < fixture.specs().size(); ++i) {
    const std::size_t bytes = fixture.specs()[i].bytes();
    if (bytes == 0 || (constant >> i & 1) != 0) continue;
    saved.emplace_back(device(), bytes);
    device().copy(saved.back().data(), fixture.pointers()[i], bytes);
    device().fill_bytes(fixture.pointers()[i], kStale, bytes);
    tensors.push_back({static_cast<unsigned char*>(fixture.pointers()[i]),
                       static_cast<const unsigned char*>(saved.back().data()), bytes});
  }
  return tensors;
}

class ProgrammaticVariant : public testing::TestWithParam<CatalogueCase> {};
INSTANTIATE_TEST_SUITE_P(Gpu, ProgrammaticVariant, testing::ValuesIn(own_device_cases(test_problems())), case_name);

TEST_P(ProgrammaticVariant, WaitsForItsInputsAndItsOutputs) {
  if (const std::string why = cannot_run_on(device(), *GetParam().implementation); !why.empty()) GTEST_SKIP() << why;
  int ran = 0;
  for_each_problem(GetParam(), [&](const ProblemEntry& problem, DType dtype) {
    Fixture fixture(device(), *GetParam().entry, problem.problem, dtype, 1);
    BoundCase bound(fixture, *GetParam().implementation);
    Verifier verifier(fixture, {.oracle_flops = 2e8});
    // Verified once by itself, which also loads the kernels: loading would wait for the late one.
    const Verdict alone = verifier.verify(bound);
    ASSERT_TRUE(alone.correct()) << alone.reason;
    // Of products the second tensor is the weights, which a network says are constant.
    const std::string& op = GetParam().entry->name();
    const bool has_weights = op == "gemm" || op.starts_with("conv");
    for (const std::uint64_t constant : {0, 2}) {
      if (constant != 0 && !has_weights) break;
      fixture.reset_outputs();
      std::vector<Buffer> saved;
      const std::vector<Restored> tensors = take_away(fixture, saved, constant);
      if (tensors.empty()) return;
      const Buffer table(device(), tensors.size() * sizeof(Restored));
      device().synchronize();
      launch_late(tensors, table);
      throw_if_failed(bound.launch(/*overlapping=*/true, constant)());
      device().synchronize();
      const Verdict verdict = verifier.judge(bound);
      EXPECT_TRUE(verdict.correct()) << "constant " << constant << ": " << verdict.reason;
      ++ran;
    }
  });
  EXPECT_GT(ran, 0);
}

// As a pipeline has it: in one CUDA graph, between launches that are programmatic. A variant that is launched another
// way (cooperatively, by an ordinary edge) must be whole for what stands behind it, too.
TEST_P(ProgrammaticVariant, IsWholeForTheLaunchBehindItInAGraph) {
  if (const std::string why = cannot_run_on(device(), *GetParam().implementation); !why.empty()) GTEST_SKIP() << why;
  if (device().description().info.compute_capability < 90) GTEST_SKIP() << "needs sm_90";
  int ran = 0;
  for_each_problem(GetParam(), [&](const ProblemEntry& problem, DType dtype) {
    Fixture fixture(device(), *GetParam().entry, problem.problem, dtype, 1);
    BoundCase bound(fixture, *GetParam().implementation);
    Verifier verifier(fixture, {.oracle_flops = 2e7});
    const Verdict alone = verifier.verify(bound);
    ASSERT_TRUE(alone.correct()) << alone.reason;
    fixture.reset_outputs();
    std::vector<Buffer> saved;
    const std::vector<Restored> tensors = take_away(fixture, saved);
    if (tensors.empty()) return;
    const Buffer table(device(), tensors.size() * sizeof(Restored));
    device().upload(table.data(), tensors.data(), tensors.size() * sizeof(Restored));
    std::size_t output = 0;
    while (fixture.specs()[output].role == Role::in) ++output;
    const std::size_t bytes = fixture.specs()[output].bytes();
    const auto* from = static_cast<const unsigned char*>(fixture.pointers()[output]);
    const Buffer seen(device(), bytes);
    auto* to = static_cast<unsigned char*>(seen.data());
    copy_all_kernel<<<kBlocks, kThreads, 0, device().context().stream>>>(from, to, bytes);  // loads it
    device().synchronize();
    const Launch overlapping = bound.launch(/*overlapping=*/true);
    const auto recording = device().record([&]() -> Status {
      late_kernel<<<kBlocks, kThreads, 0, device().context().stream>>>(static_cast<const Restored*>(table.data()),
                                                                       static_cast<int>(tensors.size()));
      if (const Status status = overlapping(); !status.ok()) return status;
      return launch_early(kBlocks, copy_all_kernel, from, to, bytes);
    });
    for (int replay = 0; replay < 3; ++replay) recording->replay();
    device().synchronize();
    const Verdict verdict = verifier.judge(bound);
    EXPECT_TRUE(verdict.correct()) << verdict.reason;
    EXPECT_EQ(device().checksum(to, bytes), device().checksum(from, bytes)) << "the launch behind saw older bytes";
    ++ran;
  });
  EXPECT_GT(ran, 0);
}

}  // namespace
}  // namespace noisefloor
