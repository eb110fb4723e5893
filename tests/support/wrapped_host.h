// The host behind an interface of the test's own: what a test does not change is done as the host does it.
#pragma once

#include "bench/platform/platform.h"

namespace noisefloor {

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
  std::vector<double> time_warm(const Launch& launch, int samples, int repeats, KeptGraphs* kept) override {
    return host_->time_warm(launch, samples, repeats, kept);
  }
  std::unique_ptr<Recording> record(const Launch& launch) override { return host_->record(launch); }
  void flush_cache() override { host_->flush_cache(); }

 private:
  std::unique_ptr<Platform> host_ = make_host_platform();
};

}  // namespace noisefloor
