// The machine a sweep runs on: a CUDA device, or the host with all its cores. Everything the harness does to memory and
// time goes through here, so that verifying and measuring are written once.
//
// Failures of the device throw DeviceError; `lost` says that the CUDA context is gone and the process must start again.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/platform/comparison.h"
#include "kernels/core/device.h"
#include "kernels/core/dtype.h"
#include "kernels/core/status.h"

namespace noisefloor {

class DeviceError : public std::runtime_error {
 public:
  DeviceError(const std::string& message, bool lost) : std::runtime_error(message), lost_(lost) {}
  bool lost() const { return lost_; }

 private:
  bool lost_;
};

struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Enqueues one launch on context().stream (on the host: runs it to its end).
using Launch = std::function<Status()>;

struct PlatformDescription {
  bool is_host = false;
  int index = -1;          // CUDA device number
  std::string name;        // "NVIDIA H200", "AMD EPYC (2 cores)"
  std::string driver;      // CUDA driver version, or the operating system
  std::string runtime;     // CUDA runtime, or the compiler
  std::string pci_bus_id;  // empty on the host
  std::string uuid;        // "GPU-4f2c...", as nvidia-smi -L prints it; empty on the host
  std::size_t memory_bytes = 0;
  DeviceInfo info;
};

// Launches that were recorded once and can be replayed: on a GPU a CUDA graph, on the host the calls themselves.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void replay() = 0;  // enqueues
};

// Graphs that were timed and stay where the driver put them, the last ones of many: the next graph then lies elsewhere.
// Launches of one kernel may take up to six percent longer in one graph than in another, as long as that exists
// (docs/experiments/measuring/2026-11-24-gate-a-fourth-time.md), so that times of one graph again and again hide the
// difference.
class KeptGraphs {
 public:
  static constexpr std::size_t kMost = 32;  // more than most phases have batches
  // Of all together. A network's graph of a thousand nodes has many places in one, and with dozens of them a launch
  // waits for the device.
  static constexpr std::size_t kMostNodes = 4096;
  void add(std::shared_ptr<const void> graph, std::size_t nodes) {
    graphs_.push_back({std::move(graph), nodes});
    nodes_ += nodes;
    while (graphs_.size() > 1 && (graphs_.size() > kMost || nodes_ > kMostNodes)) {
      nodes_ -= graphs_.front().nodes;
      graphs_.pop_front();
    }
  }
  void clear() { graphs_.clear(), nodes_ = 0; }

 private:
  struct Kept {
    std::shared_ptr<const void> graph;
    std::size_t nodes;
  };
  std::deque<Kept> graphs_;
  std::size_t nodes_ = 0;
};

class Platform {
 public:
  virtual ~Platform() = default;

  const PlatformDescription& description() const { return description_; }
  virtual std::string arch_text() const = 0;  // "sm_90", "x86-64-v4"
  LaunchContext context() const;

  // Of the thread that calls: a GPU's is then the current device, as it is of the thread that opened the platform.
  virtual void make_current() {}
  virtual void* allocate(std::size_t bytes) = 0;  // 256-byte aligned; throws OutOfMemory
  virtual void release(void* data) noexcept = 0;
  virtual std::size_t free_bytes() = 0;
  virtual void upload(void* device, const void* host, std::size_t bytes) = 0;
  virtual void download(void* host, const void* device, std::size_t bytes) = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  virtual void fill_bytes(void* data, unsigned char value, std::size_t bytes) = 0;
  // Element i is normal number i of stream `seed` (Philox), rounded into dtype: the same on every platform up to
  // rounding.
  virtual void fill_normal(DType dtype, void* data, std::int64_t count, double mean, double stddev,
                           std::uint64_t seed) = 0;
  // Order-independent sum of hashed 32-bit words; `bytes` is rounded down to whole words plus a tail word.
  virtual std::uint64_t checksum(const void* data, std::size_t bytes) = 0;
  // `rms` is that of b.
  virtual Difference compare(DType dtype, const void* a, const Expected& b, std::int64_t count, double rms) = 0;
  virtual void synchronize() = 0;
  // Waits for what a launch left to threads of this process: till 0.1 s of their own, or a second. A GPU has streams.
  virtual void wait_for_threads() {}
  // Launches and waits. False where the launch was refused, by a library for example; a device that fails throws.
  virtual bool try_launch(const Launch& launch) = 0;

  // `samples` times of one launch each, in microseconds, with none of `resident` (what the launch touches) in cache.
  virtual std::vector<double> time_cold(const Launch& launch, int samples,
                                        std::span<const std::pair<void*, std::size_t>> resident) = 0;
  // `samples` times, each the mean of `repeats` launches back to back: on a GPU replays of one CUDA graph, which is
  // added to `kept` where that is given. With `ahead`, a GPU's L2 is emptied before each sample, and it is then
  // launched: neither is timed.
  virtual std::vector<double> time_warm(const Launch& launch, int samples, int repeats, KeptGraphs* kept = nullptr,
                                        const Launch& ahead = {}) = 0;
  // `samples` times of an ordinary edge, in microseconds: each the mean over a chain of kernels without work. Empty on
  // the host, where a launch is a call.
  virtual std::vector<double> time_edges(int /*samples*/) { return {}; }
  // Of each sample of the last time_cold() or time_warm(): microseconds that its threads waited for a core, summed.
  // Empty where nobody says (a GPU).
  virtual std::span<const double> waits_us() const { return {}; }
  // While launches are timed, or recorded to be: whether these are the last of their call, whose results stay. Else
  // true.
  bool at_last_launch() const { return at_last_launch_; }
  // The SM clock now, in MHz, as the GPU itself sees it, behind all that was enqueued; NaN where it could not be read.
  // Nothing on the host.
  virtual std::optional<double> sm_clock_mhz() { return std::nullopt; }
  // Why clocks are held down now: a mask of ClockEvent (nvml.h). Nothing where nobody says.
  virtual std::optional<std::uint64_t> clock_event_reasons() { return std::nullopt; }
  // Calls `launch` once, to record what it enqueues; on the host, once for each replay.
  virtual std::unique_ptr<Recording> record(const Launch& launch) = 0;
  // Enqueues on another stream, behind all before it and beside what follows till join(). The host has one stream.
  virtual Status beside(const std::function<Status(Stream)>& launch) { return launch(stream_); }
  virtual void join() {}
  // Empties caches of everything, for counter passes.
  virtual void flush_cache() = 0;
  // Gives L2 that was set aside for persisting accesses back to everybody, and what persisted there: no flush reaches
  // it. How many bytes that was.
  virtual std::size_t take_back_l2() { return 0; }

  double element(DType dtype, const void* data, std::int64_t index);

 protected:
  PlatformDescription description_;
  Stream stream_ = nullptr;
  bool at_last_launch_ = true;
};

// Turns a launcher's status into an exception: OutOfMemory, DeviceError or std::runtime_error with the status's text.
void throw_if_failed(const Status& status);

// "an illegal memory access was encountered (cudaErrorIllegalAddress)"; the number in a build without CUDA.
std::string cuda_error_text(int error);

std::unique_ptr<Platform> make_host_platform();
// Throws DeviceError with what to do when there is no such device, no driver, or an old one; always in a build without
// CUDA.
std::unique_ptr<Platform> make_cuda_platform(int device);
// Number of CUDA devices; 0 with `why` filled when there is no driver or no device, or this build has no CUDA. Throws
// DeviceError where there is a driver that does not work: a broken GPU is not a machine without one.
int cuda_device_count(std::string& why);
// The CUDA devices without opening any of them; `why` and exceptions as of cuda_device_count. One that does not answer
// is in the list too, without a name: opening it says what is wrong. `unserved` says why this program has no code for
// one, as opening it would; else it is empty.
struct CudaDevice {
  int index;
  std::string name, pci_bus_id, unserved = {};
};
std::vector<CudaDevice> list_cuda_devices(std::string& why);

// One allocation of a platform.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Platform& platform, std::size_t bytes)
      : platform_(&platform), data_(platform.allocate(bytes)), bytes_(bytes) {}
  static Buffer of_another(void* data, std::size_t bytes) {  // who releases it
    Buffer buffer;
    buffer.data_ = data, buffer.bytes_ = bytes;
    return buffer;
  }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer() {
    if (platform_ != nullptr) platform_->release(data_);
  }
  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(platform_, other.platform_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  Platform* platform_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Memory of the host for large data.
struct FreeDeleter {
  void operator()(void* memory) const { std::free(memory); }
};
using LargeMemory = std::unique_ptr<char, FreeDeleter>;
// Not initialised; from a huge page on in huge pages, where the system grants them. Throws std::bad_alloc.
LargeMemory allocate_large(std::size_t bytes);

}  // namespace noisefloor
