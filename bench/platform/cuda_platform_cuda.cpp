// A CUDA device: memory, random inputs, comparison; what is timed and recorded is cuda_timing.h's. And which devices
// there are.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "bench/platform/build_info.h"
#include "bench/platform/clocks.h"
#include "bench/platform/cuda_kernels.h"
#include "bench/platform/cuda_timing.h"
#include "bench/platform/nvml.h"
#include "bench/platform/platform.h"

namespace noisefloor {
namespace {

constexpr std::size_t kVector = 16;  // bytes that a thread of the flush reads at once
constexpr int kEdges = 64;           // of a chain: what an event resolves, half a microsecond, is then a hundredth

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i)
    text += fmt::format("{}{:02x}", i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                        static_cast<unsigned char>(uuid.bytes[i]));
  return text;
}

std::string unserved(const cudaDeviceProp& gpu) {
  return why_unserved(gpu.name, 10 * gpu.major + gpu.minor, build_info().cuda_architectures);
}

class CudaPlatform final : public Platform {
 public:
  explicit CudaPlatform(int device) {
    cudaDeviceProp properties{};
    CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
    if (const std::string why = unserved(properties); !why.empty()) throw DeviceError(why, false);
    CUDA_CHECK(cudaSetDevice(device));
    // A stream that can be captured, yet ordered with the synchronous copies of the default stream.
    CUDA_CHECK(cudaStreamCreate(&stream_));
    CUDA_CHECK(cudaStreamCreate(&beside_));
    CUDA_CHECK(cudaEventCreateWithFlags(&reached_, cudaEventDisableTiming));
    int driver = 0, runtime = 0;
    CUDA_CHECK(cudaDriverGetVersion(&driver));
    CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
    if (driver / 1000 < runtime / 1000)
      throw DeviceError(
          fmt::format("the driver supports CUDA {}, this program needs {}: install a newer driver, or build with "
                      "an older toolkit",
                      version_text(driver), version_text(runtime)),
          false);
    std::array<char, 32> bus_id{};
    CUDA_CHECK(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), device));
    description_.index = device;
    description_.name = properties.name;
    description_.driver = version_text(driver);
    description_.runtime = version_text(runtime);
    description_.pci_bus_id = bus_id.data();
    description_.uuid = uuid_text(properties.uuid);
    description_.memory_bytes = properties.totalGlobalMem;
    description_.info.compute_capability = 10 * properties.major + properties.minor;
    description_.info.sm_count = properties.multiProcessorCount;
    description_.info.l2_bytes = static_cast<std::size_t>(properties.l2CacheSize);
    description_.info.shared_bytes_per_block = properties.sharedMemPerBlockOptin;

    // 2.5 times L2: what the replacement policy keeps of older lines is gone after two passes over its size.
    flush_bytes_ = description_.info.l2_bytes * 5 / 2 / kVector * kVector;
    CUDA_CHECK(cudaMalloc(&flush_, flush_bytes_));
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&scalar_), sizeof(unsigned long long)));
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&parts_), harness::kBlocks * sizeof(harness::ComparePart)));
    timer_.emplace();
    edge_timer_.emplace();
    fill_normal(DType::fp32, flush_, static_cast<std::int64_t>(flush_bytes_ / 4), 0, 1, 1);
    synchronize();
  }
  ~CudaPlatform() override {
    (void)cudaStreamDestroy(stream_);
    (void)cudaStreamDestroy(beside_);
    (void)cudaEventDestroy(reached_);
    (void)cudaFree(flush_);
    (void)cudaFree(scalar_);
    (void)cudaFree(parts_);
  }

  std::string arch_text() const override { return fmt::format("sm_{}", description_.info.compute_capability); }

  void make_current() override { CUDA_CHECK(cudaSetDevice(description_.index)); }
  void* allocate(std::size_t bytes) override {
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, std::max<std::size_t>(bytes, 1));
    if (error == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      throw OutOfMemory(fmt::format("needs {:.2f} GiB of device memory, {:.2f} GiB are free",
                                    static_cast<double>(bytes) / 0x1p30, static_cast<double>(free_bytes()) / 0x1p30));
    }
    check_cuda(error, "cudaMalloc");
    return data;
  }
  void release(void* data) noexcept override { (void)cudaFree(data); }
  std::size_t free_bytes() override {
    std::size_t free = 0, total = 0;
    CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return free;
  }
  void upload(void* device, const void* host, std::size_t bytes) override {
    CUDA_CHECK(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
  }
  void download(void* host, const void* device, std::size_t bytes) override {
    CUDA_CHECK(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_));
  }
  void fill_bytes(void* data, unsigned char value, std::size_t bytes) override {
    CUDA_CHECK(cudaMemsetAsync(data, value, bytes, stream_));
  }

  void fill_normal(DType dtype, void* data, std::int64_t count, double mean, double stddev,
                   std::uint64_t seed) override {
    CUDA_CHECK(
        harness::fill_normal(dtype, data, count, static_cast<float>(mean), static_cast<float>(stddev), seed, stream_));
  }

  std::uint64_t checksum(const void* data, std::size_t bytes) override {
    CUDA_CHECK(cudaMemsetAsync(scalar_, 0, sizeof(unsigned long long), stream_));
    CUDA_CHECK(harness::checksum(data, bytes, scalar_, stream_));
    std::uint64_t sum = 0;
    download(&sum, scalar_, sizeof sum);
    return sum;
  }

  Difference compare(DType dtype, const void* a, const Expected& b, std::int64_t count, double rms) override {
    CUDA_CHECK(harness::compare(dtype, a, b, count, rms, parts_, stream_));
    std::vector<harness::ComparePart> parts(harness::kBlocks);
    download(parts.data(), parts_, parts.size() * sizeof(harness::ComparePart));
    return harness::merged(parts);
  }

  void synchronize() override {
    CUDA_CHECK(cudaDeviceSynchronize());
    CUDA_CHECK(cudaGetLastError());
  }

  bool try_launch(const Launch& launch) override {
    const Status status = launch();
    if (!status.ok()) (void)cudaGetLastError();  // a refusal leaves it behind; a failed device shows below
    synchronize();
    return status.ok();
  }

  std::vector<double> time_cold(const Launch& launch, int samples,
                                std::span<const std::pair<void*, std::size_t>>) override {
    const auto before = [&, left = samples]() mutable {
      at_last_launch_ = --left == 0;
      flush_cache();
    };
    return timer_->time(
        stream_, samples, 1, [&] { throw_if_failed(launch()); }, before);
  }

  std::vector<double> time_warm(const Launch& launch, int samples, int repeats, KeptGraphs* kept,
                                const Launch& ahead) override {
    const auto before = [&] {
      if (!ahead) return;
      flush_cache();
      throw_if_failed(ahead());
    };
    const auto time = [&](const CudaGraph& graph) {
      graph.enqueue(stream_);
      return timer_->time(
          stream_, samples, repeats, [&] { graph.enqueue(stream_); }, before);
    };
    const Launch counted = [&, left = repeats]() mutable {
      at_last_launch_ = --left == 0;
      return launch();
    };
    if (kept == nullptr) return time(CudaGraph(stream_, counted, repeats));
    const auto beside = std::make_shared<const GraphInItsChunk>(stream_, counted, repeats, fillers_);
    kept->add(beside, beside->graph().nodes());
    return time(beside->graph());
  }

  std::vector<double> time_edges(int samples) override {
    if (!edges_) {
      const auto launch = [&] {
        CUDA_CHECK(harness::do_nothing(stream_));
        return success();
      };
      edges_.emplace(stream_, launch, kEdges);
    }
    edges_->enqueue(stream_);
    return edge_timer_->time(
        stream_, samples, kEdges, [&] { edges_->enqueue(stream_); }, [] {});
  }

  std::optional<double> sm_clock_mhz() override {
    constexpr double kSpinUs = 20;
    if (!clock_) clock_.emplace(kSpinUs);
    clock_->enqueue(stream_);
    synchronize();
    return clock_->mhz();
  }
  std::optional<std::uint64_t> clock_event_reasons() override {
    if (!monitor_) monitor_.emplace(description_.pci_bus_id);
    return monitor_->clock_event_reasons();
  }

  Status beside(const std::function<Status(Stream)>& launch) override {
    order(stream_, beside_);
    is_beside_ = true;
    return launch(beside_);
  }
  void join() override {
    if (std::exchange(is_beside_, false)) order(beside_, stream_);
  }
  std::unique_ptr<Recording> record(const Launch& launch) override {
    struct GraphRecording final : Recording {
      // Uploaded at once, since the first replay may stand behind a gate.
      GraphRecording(cudaStream_t stream_, const Launch& launch) : stream(stream_), graph(stream_, launch, 1) {
        graph.upload(stream);
      }
      void replay() override { graph.enqueue(stream); }
      cudaStream_t stream;
      CudaGraph graph;
    };
    is_beside_ = false;  // of a recording that failed
    return std::make_unique<GraphRecording>(stream_, launch);
  }

  void flush_cache() override {
    CUDA_CHECK(harness::flush_l2(flush_, flush_bytes_, reinterpret_cast<unsigned*>(scalar_), description_.info.sm_count,
                                 stream_));
  }

  std::size_t take_back_l2() override {
    std::size_t set_aside = 0;
    if (cudaDeviceGetLimit(&set_aside, cudaLimitPersistingL2CacheSize) != cudaSuccess) {
      (void)cudaGetLastError();  // sm_75 has no such thing
      return 0;
    }
    if (set_aside == 0) return 0;
    CUDA_CHECK(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 0));
    CUDA_CHECK(cudaCtxResetPersistingL2Cache());
    return set_aside;
  }

 private:
  void order(cudaStream_t first, cudaStream_t then) {
    CUDA_CHECK(cudaEventRecord(reached_, first));
    CUDA_CHECK(cudaStreamWaitEvent(then, reached_));
  }

  cudaStream_t beside_ = nullptr;
  cudaEvent_t reached_ = nullptr;
  bool is_beside_ = false;
  void* flush_ = nullptr;
  std::size_t flush_bytes_ = 0;
  unsigned long long* scalar_ = nullptr;
  harness::ComparePart* parts_ = nullptr;
  // Made once the device is the current one. Edges have one of their own: a timer goes by how long its launches were.
  std::optional<GatedTimer> timer_, edge_timer_;
  std::optional<CudaGraph> edges_;  // a chain of kernels without work
  Fillers fillers_;
  // Made at the first question.
  std::optional<ClockSampler> clock_;
  std::optional<GpuMonitor> monitor_;
};

}  // namespace

std::unique_ptr<Platform> make_cuda_platform(int device) {
  std::string why;
  const int count = cuda_device_count(why);
  if (count == 0) throw DeviceError(why, false);
  if (device < 0 || device >= count)
    throw DeviceError(fmt::format("there is no CUDA device {}; this machine has 0 to {}", device, count - 1), false);
  return std::make_unique<CudaPlatform>(device);
}

int cuda_device_count(std::string& why) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  (void)cudaGetLastError();
  int driver = 0;
  (void)cudaDriverGetVersion(&driver);  // 0 where there is no driver
  if (error == cudaSuccess || error == cudaErrorNoDevice || (error == cudaErrorInsufficientDriver && driver == 0)) {
    why = driver == 0 ? "no CUDA driver; install the NVIDIA driver, or use --device host"
                      : "no CUDA device; use --device host";
    return 0;
  }
  if (error == cudaErrorInsufficientDriver)
    throw DeviceError(
        fmt::format("the driver supports CUDA {}, which is too old for this program; install a newer driver, "
                    "or use --device host",
                    version_text(driver)),
        false);
  throw DeviceError(fmt::format("the GPUs of this machine do not answer: {}; --device host runs the host variants",
                                cuda_error_text(error)),
                    true);
}

std::vector<CudaDevice> list_cuda_devices(std::string& why) {
  std::vector<CudaDevice> devices;
  const int count = cuda_device_count(why);
  for (int index = 0; index < count; ++index) {
    CudaDevice device{index, {}, {}, {}};
    cudaDeviceProp properties{};
    std::array<char, 32> bus_id{};
    if (cudaGetDeviceProperties(&properties, index) == cudaSuccess) {
      device.name = properties.name;
      device.unserved = unserved(properties);
    }
    if (cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), index) == cudaSuccess)
      device.pci_bus_id = bus_id.data();
    (void)cudaGetLastError();
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace noisefloor
