// The host behind interfaces of the tests' own: as it is, with little memory, and with a clock that says what a test
// says.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/measure/implementation.h"
#include "bench/platform/platform.h"

namespace noisefloor {

// This host as it is, which tests share.
inline Platform& host() {
  static const std::unique_ptr<Platform> platform = make_host_platform();
  return *platform;
}

// What a test does not change is done as the host does it.
class WrappedHost : public Platform {
 public:
  WrappedHost() { description_ = host_->description(); }

  std::string arch_text() const override { return host_->arch_text(); }
  void* allocate(std::size_t bytes) override { return host_->allocate(bytes); }
  void release(void* data) noexcept override { host_->release(data); }
  std::size_t free_bytes() override { return host_->free_bytes(); }
  void upload(void* device, const void* host, std::size_t bytes) override { host_->upload(device, host, bytes); }
  void download(void* host, const void* device, std::size_t bytes) override { host_->download(host, device, bytes); }
  void copy(void* to, const void* from, std::size_t bytes) override { host_->copy(to, from, bytes); }
  void fill_bytes(void* data, unsigned char value, std::size_t bytes) override {
    host_->fill_bytes(data, value, bytes);
  }
  void fill_normal(DType dtype, void* data, std::int64_t count, double mean, double stddev,
                   std::uint64_t seed) override {
    host_->fill_normal(dtype, data, count, mean, stddev, seed);
  }
  std::uint64_t checksum(const void* data, std::size_t bytes) override { return host_->checksum(data, bytes); }
  Difference compare(DType dtype, const void* a, const Expected& b, std::int64_t count, double rms) override {
    return host_->compare(dtype, a, b, count, rms);
  }
  void synchronize() override { host_->synchronize(); }
  void wait_for_threads() override { host_->wait_for_threads(); }
  bool try_launch(const Launch& launch) override { return host_->try_launch(launch); }
  std::vector<double> time_cold(const Launch& launch, int samples,
                                std::span<const std::pair<void*, std::size_t>> resident) override {
    return host_->time_cold(launch, samples, resident);
  }
  std::vector<double> time_warm(const Launch& launch, int samples, int repeats, KeptGraphs* kept,
                                const Launch& ahead) override {
    return host_->time_warm(launch, samples, repeats, kept, ahead);
  }
  std::unique_ptr<Recording> record(const Launch& launch) override { return host_->record(launch); }
  void flush_cache() override { host_->flush_cache(); }

 private:
  std::unique_ptr<Platform> host_ = make_host_platform();
};

// With little memory: what does not fit is refused, as on a device; and recordings are counted.
template <class Base>
class Limited : public Base {
 public:
  explicit Limited(std::size_t bytes) : free_(bytes) {}

  void* allocate(std::size_t bytes) override {
    if (bytes > free_) throw OutOfMemory("the limit of the test");
    void* const data = Base::allocate(bytes);
    sizes_[data] = bytes;
    free_ -= bytes;
    return data;
  }
  void release(void* data) noexcept override {
    const auto size = sizes_.find(data);
    free_ += size->second;
    sizes_.erase(size);
    Base::release(data);
  }
  std::size_t free_bytes() override { return free_; }
  std::unique_ptr<Recording> record(const Launch& launch) override {
    ++recordings;
    return Base::record(launch);
  }

  int recordings = 0;

 private:
  std::size_t free_;
  std::map<void*, std::size_t> sizes_;
};

using LimitedPlatform = Limited<WrappedHost>;

// `variant`, whose launches are `launch(own, pointers, context)`, where own(pointers) is its own launch.
template <class Launched>
AnyVariant launched_by(AnyVariant variant, Launched launch) {
  variant.launch = [launch = std::move(launch), before = std::move(variant.launch)](
                       const AnyProblem& problem, DType dtype, std::span<void* const> pointers, const Scratch& scratch,
                       const LaunchContext& context) mutable {
    const auto own = [&](std::span<void* const> given) { return before(problem, dtype, given, scratch, context); };
    return launch(own, pointers, context);
  };
  return variant;
}

// `variant`, behind whose launches `after` is called with their tensors.
inline AnyVariant followed_by(AnyVariant variant, std::function<void(std::span<void* const>)> after) {
  return launched_by(std::move(variant), [after = std::move(after)](const auto& own, auto pointers, const auto&) {
    const Status status = own(pointers);
    after(pointers);
    return status;
  });
}

// An implementation on the host of any name and kind, made by a function.
struct MadeBy final : Implementation {
  using Make = std::function<std::unique_ptr<Ready>(Platform&, const AnyProblem&, DType, KnownTimes&)>;
  MadeBy(const std::string& its_name, Kind its_kind, Make its_make) : maker(std::move(its_make)) {
    name = its_name, kind = to_string(its_kind), on_host = true;
  }
  std::unique_ptr<Ready> make(Platform& platform, const AnyProblem& problem, DType dtype,
                              KnownTimes& known) const override {
    return maker(platform, problem, dtype, known);
  }
  Make maker;
};

inline std::shared_ptr<MadeBy> made_as(const AnyVariant& variant, const std::string& name, Kind kind) {
  return std::make_shared<MadeBy>(name, kind, [kept = std::make_shared<AnyVariant>(variant)](auto&&... given) {
    return implementation_of(*kept)->make(given...);
  });
}

// With a clock of the test's own: a launch takes what it adds to `clock_us`, and is done as the host does it.
class ScriptedPlatform : public WrappedHost {
 public:
  double clock_us = 0;
  bool warm = false, timing = false;            // while warm launches, while any are timed
  std::vector<int> cold_calls;                  // samples
  std::vector<std::pair<int, int>> warm_calls;  // samples, repeats

  std::vector<double> time_cold(const Launch& launch, int samples,
                                std::span<const std::pair<void*, std::size_t>>) override {
    cold_calls.push_back(samples);
    return timed(launch, samples, 1);
  }
  std::vector<double> time_warm(const Launch& launch, int samples, int repeats, KeptGraphs*, const Launch&) override {
    warm_calls.emplace_back(samples, repeats);
    warm = true;
    auto times = timed(launch, samples, repeats);
    warm = false;
    return times;
  }

  // `variant`, whose launches take `us` on this platform, which must outlive it.
  AnyVariant taking(double us, AnyVariant variant) {
    return followed_by(std::move(variant), [this, us](std::span<void* const>) { clock_us += us; });
  }

 private:
  std::vector<double> timed(const Launch& launch, int samples, int repeats) {
    std::vector<double> times;
    timing = true;
    for (int i = 0; i < samples; ++i) {
      const double start = clock_us;
      for (int j = 0; j < repeats; ++j) throw_if_failed(launch());
      times.push_back((clock_us - start) / repeats);
    }
    timing = false;
    return times;
  }
};

}  // namespace noisefloor
