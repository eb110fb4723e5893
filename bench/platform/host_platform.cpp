// The host: plain memory, all cores, caches emptied line by line.
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "bench/platform/platform.h"
#include "bench/platform/processors.h"
#include "bench/platform/random.h"
#include "kernels/core/device.h"
#include "kernels/core/parallel.h"

namespace noisefloor {
namespace {

constexpr std::size_t kCacheLine = 64;
constexpr std::int64_t kGrain = 1 << 16;

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Writes back and drops every line of the range from all cache levels.
void evict(const void* data, std::size_t bytes) {
#if defined(__x86_64__)
  parallel_for(static_cast<std::int64_t>(bytes), 1 << 20, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t offset = begin; offset < end; offset += kCacheLine)
      __builtin_ia32_clflush(static_cast<const char*>(data) + offset);
  });
  __builtin_ia32_mfence();
#else
  (void)data;
  (void)bytes;
#endif
}

// Every thread of OpenMP runs when this returns, and spins for a while (process_limits.h): a launch then begins on all
// cores, as it does behind another one.
void wake_threads() {
#pragma omp parallel num_threads(host_threads())
  {
#pragma omp barrier
  }
}

class HostPlatform final : public Platform {
 public:
  HostPlatform() {
    description_.is_host = true;
    const int cores = host_threads();
    description_.name = fmt::format("{} ({} {})", cpu_name(), cores, cores == 1 ? "core" : "cores");
    utsname system{};
    uname(&system);
    description_.driver = fmt::format("{} {}", system.sysname, system.release);
    description_.runtime = "GCC " __VERSION__;
    description_.memory_bytes =
        static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
    description_.info.sm_count = cores;
    const long last_level = sysconf(_SC_LEVEL3_CACHE_SIZE);
    description_.info.l2_bytes = last_level > 0 ? static_cast<std::size_t>(last_level) : std::size_t{32} << 20;
  }

  std::string arch_text() const override { return NOISEFLOOR_HOST_ARCH; }

  void* allocate(std::size_t bytes) override {
    if (bytes > free_bytes())
      throw OutOfMemory(fmt::format("needs {:.1f} GiB of host memory, {:.1f} GiB are free",
                                    static_cast<double>(bytes) / 0x1p30, static_cast<double>(free_bytes()) / 0x1p30));
    void* data = ::operator new (std::max<std::size_t>(bytes, 1), std::align_val_t{kAllocationAlignment}, std::nothrow);
    if (data == nullptr)
      throw OutOfMemory(
          fmt::format("{:.1f} GiB of host memory could not be allocated", static_cast<double>(bytes) / 0x1p30));
    return data;
  }
  void release(void* data) noexcept override { ::operator delete (data, std::align_val_t{kAllocationAlignment}); }

  std::size_t free_bytes() override {
    std::ifstream file("/proc/meminfo");
    for (std::string line; std::getline(file, line);)
      if (line.rfind("MemAvailable:", 0) == 0) return std::stoull(line.substr(13)) * 1024;
    return description_.memory_bytes / 2;
  }
  void upload(void* device, const void* host, std::size_t bytes) override { std::memcpy(device, host, bytes); }
  void download(void* host, const void* device, std::size_t bytes) override { std::memcpy(host, device, bytes); }
  void copy(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void fill_bytes(void* data, unsigned char value, std::size_t bytes) override { std::memset(data, value, bytes); }

  void fill_normal(DType dtype, void* data, std::int64_t count, double mean, double stddev,
                   std::uint64_t seed) override {
    parallel_for(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
      float numbers[4];
      for (std::int64_t i = begin; i < end; ++i) {
        if (i % 4 == 0 || i == begin) normal_block(seed, static_cast<std::uint64_t>(i / 4), numbers);
        store_element(dtype, data, i, static_cast<float>(mean) + static_cast<float>(stddev) * numbers[i % 4]);
      }
    });
  }

  std::uint64_t checksum(const void* data, std::size_t bytes) override {
    constexpr std::size_t kWord = sizeof(std::uint32_t);
    const auto whole_words = static_cast<std::int64_t>(bytes / kWord);
    const auto word_at = [data](std::int64_t i, std::size_t size) {
      std::uint32_t word = 0;
      std::memcpy(&word, static_cast<const char*>(data) + static_cast<std::size_t>(i) * kWord, size);
      return hashed_word(word, static_cast<std::uint64_t>(i));
    };
    std::uint64_t sum = bytes % kWord == 0 ? 0 : word_at(whole_words, bytes % kWord);
    std::mutex mutex;
    parallel_for(whole_words, kGrain, [&](std::int64_t begin, std::int64_t end) {
      std::uint64_t part = 0;
      for (std::int64_t i = begin; i < end; ++i) part += word_at(i, kWord);
      const std::lock_guard lock(mutex);
      sum += part;
    });
    return sum;
  }

  Difference compare(DType dtype, const void* a, const Expected& b, std::int64_t count, double rms) override {
    std::vector<harness::ComparePart> parts(static_cast<std::size_t>((count + kGrain - 1) / kGrain));
    parallel_for(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
      harness::ComparePart part{};
      for (std::int64_t i = begin; i < end; ++i) {
        const double x = load_element(dtype, a, b.elements == nullptr ? i : b.elements[i]);
        const double y = load_element(b.dtype, b.values, i);
        const double error = std::abs(x - y), relative = error == 0 ? 0 : error / (std::abs(y) + rms);
        if (!std::isfinite(x)) {
          if (part.not_finite == 0) part.worst = i;
          part.not_finite = 1;
          continue;
        }
        if (!(relative <= part.max_error)) {
          part.max_error = relative;
          if (part.not_finite == 0) part.worst = i;
        }
        part.squared_error += error * error;
        part.squared += y * y;
      }
      parts[static_cast<std::size_t>(begin / kGrain)] = part;
    });
    return harness::merged(parts);
  }

  void synchronize() override {}

  // A thread that works runs or is ready; one that was woken just now may not be seen yet.
  void wait_for_threads() override {
    constexpr std::chrono::milliseconds kMoment{10};
    const auto begin = std::chrono::steady_clock::now();
    const std::clock_t computed = std::clock();
    const auto waited = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
    do std::this_thread::sleep_for(kMoment);
    while (may_still_work(own_runnable_threads() - 1, waited(),
                          static_cast<double>(std::clock() - computed) / CLOCKS_PER_SEC));
  }

  bool try_launch(const Launch& launch) override { return launch().ok(); }

  std::vector<double> time_cold(const Launch& launch, int samples,
                                std::span<const std::pair<void*, std::size_t>> resident) override {
    const auto evict_all = [&] {
      for (const auto& [data, bytes] : resident) evict(data, bytes);
#if !defined(__x86_64__)
      flush_cache();
#endif
    };
    return timed(launch, samples, 1, Caches::cold, evict_all);
  }

  std::vector<double> time_warm(const Launch& launch, int samples, int repeats, KeptGraphs*, const Launch&) override {
    at_last_launch_ = false;
    throw_if_failed(launch());
    return timed(launch, samples, repeats, Caches::warm, [] {});
  }

  std::span<const double> waits_us() const override {
    return waits_us_;
  }

  std::unique_ptr<Recording> record(const Launch& launch) override {
    struct Calls final : Recording {
      explicit Calls(Launch launch_) : launch(std::move(launch_)) {}
      void replay() override { throw_if_failed(launch()); }
      Launch launch;
    };
    return std::make_unique<Calls>(launch);
  }

  void flush_cache() override {
    flush_.resize(2 * description_.info.l2_bytes);
    parallel_for(static_cast<std::int64_t>(flush_.size()), 1 << 20, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; i += kCacheLine) ++flush_[static_cast<std::size_t>(i)];
    });
  }

 private:
  enum class Caches { cold, warm };

  // `prepare` is called before each sample, untimed.
  template <class Prepare>
  std::vector<double> timed(const Launch& launch, int samples, int repeats, Caches caches, const Prepare& prepare) {
    std::vector<double> times;
    waits_us_.clear();
    const PinnedThreads pinned;
    wake_threads();  // the first call makes them
    run_queue_.list_threads();
    const double stolen_before = stolen_us();
    for (int i = 0; i < samples; ++i) {
      at_last_launch_ = i + 1 == samples;
      const bool is_back = come_back(launch, caches);
      prepare();
      wake_threads();
      const double waited_before = run_queue_.waited_us();
      times.push_back(time_of(launch, repeats));
      seen_waited_us_ = run_queue_.waited_us();
      const double waited = (seen_waited_us_ - waited_before) / repeats;
      waits_us_.push_back(is_back ? waited : times.back());
      rests_ = waits_us_.back() > kWaitThatRests * times.back();
    }
    // A hypervisor says how much it took, in ticks, and not from which sample.
    const double stolen = (stolen_us() - stolen_before) / (samples * repeats);
    for (double& wait : waits_us_) wait += stolen;
    return times;
  }

  static double time_of(const Launch& launch, int repeats) {
    const double start = now_us();
    for (int i = 0; i < repeats; ++i) throw_if_failed(launch());
    return (now_us() - start) / repeats;
  }

  // Where a thread had to wait, its time slice was over: threads that slept for a while get their cores for a whole
  // one. And who had the core meanwhile left its caches to himself: untimed launches take them back. False where they
  // were interrupted again and again.
  bool come_back(const Launch& launch, Caches caches) {
    constexpr std::chrono::milliseconds kRest{2};
    constexpr double kGoneUs = 20;
    constexpr int kTries = 3;
    bool gone = rests_;
    if (rests_) {
      std::this_thread::sleep_for(kRest);
      wake_threads();
    }
    for (int i = 0; i < kTries; ++i) {
      const double now = run_queue_.waited_us();
      gone = gone || now - seen_waited_us_ > kGoneUs;
      seen_waited_us_ = now;
      if (!gone) return true;
      if (caches == Caches::warm)
        gone = !settle(launch);
      else
        gone = false, time_of(launch, 1);
    }
    return !gone && run_queue_.waited_us() - seen_waited_us_ <= kGoneUs;
  }

  // Launches until they become no faster: each finds more of what it reads in the caches.
  static bool settle(const Launch& launch) {
    constexpr int kMost = 12, kSteady = 2;
    constexpr double kFaster = 0.98;
    double fastest = time_of(launch, 1);
    for (int i = 1, steady = 0; i < kMost; ++i) {
      const double next = time_of(launch, 1);
      steady = next < kFaster * fastest ? 0 : steady + 1;
      if (steady == kSteady) return true;
      fastest = std::min(fastest, next);
    }
    return false;
  }

  static constexpr double kWaitThatRests = 0.01;
  double seen_waited_us_ = 0;  // behind the last launch
  bool rests_ = false;
  RunQueueWatch run_queue_;
  std::vector<double> waits_us_;
  std::vector<char> flush_;
};

}  // namespace

std::unique_ptr<Platform> make_host_platform() {
  return std::make_unique<HostPlatform>();
}

}  // namespace noisefloor
