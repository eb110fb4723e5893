// The ceilings of the host: what all of its cores together copy and multiply.
#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <new>
#include <stdexcept>

#include "bench/ceilings/ceilings.h"
#include "bench/platform/platform.h"
#include "bench/platform/processors.h"
#include "kernels/core/parallel.h"

namespace noisefloor {
namespace {

#if defined(__AVX512F__)
constexpr const char* kVectorName = "avx512";
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__) && defined(__FMA__)
constexpr const char* kVectorName = "avx2";
constexpr int kVectorBytes = 32;
#else
constexpr const char* kVectorName = "128-bit vectors";
constexpr int kVectorBytes = 16;
#endif
using Vector __attribute__((vector_size(kVectorBytes))) = float;
constexpr int kLanes = kVectorBytes / 4;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Best {
  double seconds = 1e9;
  std::optional<double> load;
};

// The fastest of the runs that fit into half a second, at least five: other programs only ever slow a run down. Where
// they keep all runs waiting, the runs go on for longer.
template <class Run>
Best best_of(const Run& run) {
  constexpr int kFewest = 5;
  constexpr double kSeconds = 0.5, kMostSeconds = 1.5, kWaitShare = 0.01;
  run();
  const PinnedThreads pinned;
  RunQueueWatch watch;
  watch.list_threads();
  Best best;
  double load = 0;
  int runs = 0, readings = 0, undisturbed = 0;
  const auto start = std::chrono::steady_clock::now();
  for (double elapsed = 0; runs < kFewest || elapsed < kSeconds || (undisturbed < kFewest && elapsed < kMostSeconds);
       ++runs, elapsed = seconds_since(start)) {
    const double waited_before = watch.waited_us();
    const auto begin = std::chrono::steady_clock::now();
    run();
    const double seconds = seconds_since(begin);
    best.seconds = std::min(best.seconds, seconds);
    if (watch.waited_us() - waited_before <= kWaitShare * seconds * 1e6) ++undisturbed;
    if (const auto others = other_runnable_threads()) load += *others, ++readings;
  }
  if (readings > 0) best.load = load / readings;
  return best;
}

Ceiling rate(const char* name, double work, const Best& best, const char* unit) {
  return {name, work / best.seconds * 1e-9, unit, 0, 0, best.load};
}

LargeMemory allocate(std::size_t bytes) {
  try {
    return allocate_large(bytes);
  } catch (const std::bad_alloc&) {
    throw std::runtime_error(fmt::format("host ceilings: {} MB of memory cannot be had", bytes >> 20));
  }
}

// One of the two arrays: four times the last-level cache and at least 64 MB, but at most an eighth of the free memory.
std::size_t array_bytes() {
  const long cache = std::max(sysconf(_SC_LEVEL3_CACHE_SIZE), sysconf(_SC_LEVEL2_CACHE_SIZE));
  const auto wanted = std::max<std::size_t>(std::size_t{64} << 20, 4 * static_cast<std::size_t>(std::max(cache, 0L)));
  const auto available =
      static_cast<std::size_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  constexpr std::size_t kGrain = std::size_t{2} << 20;  // a huge page
  return std::max(kGrain, std::min(wanted, available / 8) / kGrain * kGrain);
}

// The sum is kept, so that no load can be dropped.
std::uint64_t sum_of(const char* data, std::int64_t begin, std::int64_t end) {
  constexpr int kUnroll = 8;
  using Words __attribute__((vector_size(kVectorBytes))) = std::uint64_t;
  Words sums[kUnroll] = {};
  for (std::int64_t i = begin; i < end; i += kUnroll * kVectorBytes)
#pragma GCC unroll 8
    for (int u = 0; u < kUnroll; ++u) sums[u] += *reinterpret_cast<const Words*>(data + i + u * kVectorBytes);
  std::uint64_t total = 0;
  for (const Words& sum : sums)
    for (int lane = 0; lane < kVectorBytes / 8; ++lane) total += sum[lane];
  return total;
}

// Bytes per second: of a copy those read plus those written, by memcpy, which takes the stores past the caches that
// this CPU is best at; and of reads alone.
void add_memory_rates(std::vector<Ceiling>& rates) {
  const std::size_t bytes = array_bytes();
  const LargeMemory from = allocate(bytes), to = allocate(bytes);
  constexpr std::int64_t kGrain = std::int64_t{4} << 20;
  const auto size = static_cast<std::int64_t>(bytes);
  // Random words, written by the threads that will use them, so that pages lie near their cores.
  parallel_for(size, kGrain, [&](std::int64_t begin, std::int64_t end) {
    std::uint64_t state = 0x9e3779b97f4a7c15u * static_cast<std::uint64_t>(begin + 1);
    for (std::int64_t i = begin; i < end; i += 8) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      std::memcpy(from.get() + i, &state, 8);
      std::memcpy(to.get() + i, &state, 8);
    }
  });
  const Best best = best_of([&] {
    parallel_for(size, kGrain, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(to.get() + begin, from.get() + begin, static_cast<std::size_t>(end - begin));
    });
  });
  if (std::memcmp(from.get(), to.get(), bytes) != 0)
    throw std::runtime_error("host ceilings: the copy is not what was copied");
  rates.push_back(rate("dram_copy", 2.0 * static_cast<double>(bytes), best, "GB/s"));
  std::atomic<std::uint64_t> sum = 0;
  const Best reads = best_of([&] {
    parallel_for(size, kGrain, [&](std::int64_t begin, std::int64_t end) { sum += sum_of(from.get(), begin, end); });
  });
  rates.push_back(rate("dram_read", static_cast<double>(bytes), reads, "GB/s"));
}

// FLOPs per second of independent chains of multiply-adds in vector registers: two ports times four or five cycles of
// latency need eight to ten of them.
Ceiling fma_rate() {
  constexpr int kChains = 12;
  constexpr std::int64_t kSteps = 1 << 18;  // about a millisecond: short enough to miss what else runs
  const int asked = host_threads();
  int threads = 1;  // that OpenMP gives: it may be told to give fewer (OMP_DYNAMIC)
  volatile float sink = 0;
  const Best best = best_of([&] {
    float total = 0;
#pragma omp parallel num_threads(asked) reduction(+ : total)
    {
#pragma omp single nowait
      threads = omp_get_num_threads();
      Vector chains[kChains], factor, shift;
      for (int lane = 0; lane < kLanes; ++lane) {
        // Factors below 1 keep the chains finite and away from subnormals.
        factor[lane] = 0.5f + 0.3f * static_cast<float>((lane * 37 + omp_get_thread_num() * 11) % 101) / 101.0f;
        shift[lane] = 0.1f + static_cast<float>((lane * 53) % 97) / 97.0f;
        for (int chain = 0; chain < kChains; ++chain) chains[chain][lane] = static_cast<float>(chain + lane);
      }
      for (std::int64_t step = 0; step < kSteps; ++step)
#pragma GCC unroll 12
        for (int chain = 0; chain < kChains; ++chain) chains[chain] = chains[chain] * factor + shift;
      for (int chain = 0; chain < kChains; ++chain)
        for (int lane = 0; lane < kLanes; ++lane) total += chains[chain][lane];
    }
    sink = total;
  });
  static_cast<void>(sink);
  return rate("fma_fp32", 2.0 * kChains * kLanes * static_cast<double>(kSteps) * threads, best, "GFLOP/s");
}

}  // namespace

DeviceIdentity host_identity() {
  return {fmt::format("{} ({} threads)", cpu_name(), host_threads()), kVectorName, 0};
}

Ceilings measure_host_ceilings() {
  const DeviceIdentity identity = host_identity();
  Ceilings result{identity.name, identity.driver, "", {}};
  add_memory_rates(result.rows);
  result.rows.push_back(fma_rate());
  return result;
}

}  // namespace noisefloor
