// A CUDA device: memory, random inputs, comparison, and timing with events behind a gate.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "bench/platform/cuda_kernels.h"
#include "bench/platform/platform.h"

namespace noisefloor {
namespace {

constexpr std::size_t kVector = 16;  // bytes that a thread of the flush reads at once
constexpr unsigned long long kGateTimeoutNs = 5'000'000'000ull;
// Samples queued behind one gate. In longer queues all but the last few come out longer, and by an amount that differs
// from process to process (reports/README.md has the numbers).
constexpr int kQueued = 4;

// After one of these every later call of the process fails too.
bool context_is_lost(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
      return true;
    default:
      return false;
  }
}

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();
  if (error == cudaErrorMemoryAllocation) throw OutOfMemory(fmt::format("{}: out of device memory", call));
  throw DeviceError(fmt::format("{}: {}", call, cuda_error_text(error)), context_is_lost(error));
}
#define CHECK(call) check((call), #call)

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// Or a copy: what a launch that does nothing has not.
bool has_kernel(cudaGraph_t graph) {
  std::size_t count = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    CHECK(cudaGraphNodeGetType(node, &type));
    if (type == cudaGraphNodeTypeKernel || type == cudaGraphNodeTypeMemcpy) return true;
    cudaGraph_t child = nullptr;
    if (type != cudaGraphNodeTypeGraph) continue;
    CHECK(cudaGraphChildGraphNodeGetGraph(node, &child));
    if (has_kernel(child)) return true;
  }
  return false;
}

class Event {
 public:
  Event() { CHECK(cudaEventCreate(&event_)); }
  ~Event() { (void)cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaPlatform final : public Platform {
 public:
  explicit CudaPlatform(int device) {
    CHECK(cudaSetDevice(device));
    // A stream that can be captured, yet ordered with the synchronous copies of the default stream.
    CHECK(cudaStreamCreate(&stream_));
    cudaDeviceProp properties{};
    CHECK(cudaGetDeviceProperties(&properties, device));
    int driver = 0, runtime = 0;
    CHECK(cudaDriverGetVersion(&driver));
    CHECK(cudaRuntimeGetVersion(&runtime));
    if (driver / 1000 < runtime / 1000)
      throw DeviceError(
          fmt::format("the driver supports CUDA {}, this program needs {}: install a newer driver, or build with "
                      "an older toolkit",
                      version_text(driver), version_text(runtime)),
          false);
    std::array<char, 32> bus_id{};
    CHECK(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), device));
    description_.index = device;
    description_.name = properties.name;
    description_.driver = version_text(driver);
    description_.runtime = version_text(runtime);
    description_.pci_bus_id = bus_id.data();
    description_.memory_bytes = properties.totalGlobalMem;
    description_.info.compute_capability = 10 * properties.major + properties.minor;
    description_.info.sm_count = properties.multiProcessorCount;
    description_.info.l2_bytes = static_cast<std::size_t>(properties.l2CacheSize);
    description_.info.shared_bytes_per_block = properties.sharedMemPerBlockOptin;

    // 2.5 times L2: what the replacement policy keeps of older lines is gone after two passes over its size.
    flush_bytes_ = description_.info.l2_bytes * 5 / 2 / kVector * kVector;
    CHECK(cudaMalloc(&flush_, flush_bytes_));
    CHECK(cudaMalloc(reinterpret_cast<void**>(&scalar_), sizeof(unsigned long long)));
    CHECK(cudaMallocHost(reinterpret_cast<void**>(&gate_), 2 * sizeof(int)));
    fill_normal(DType::fp32, flush_, static_cast<std::int64_t>(flush_bytes_ / 4), 0, 1, 1);
    synchronize();
  }
  ~CudaPlatform() override {
    (void)cudaStreamDestroy(stream_);
    (void)cudaFree(flush_);
    (void)cudaFree(scalar_);
    (void)cudaFreeHost(gate_);
  }

  std::string arch_text() const override { return fmt::format("sm_{}", description_.info.compute_capability); }

  void* allocate(std::size_t bytes) override {
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, std::max<std::size_t>(bytes, 1));
    if (error == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      throw OutOfMemory(fmt::format("needs {:.2f} GiB of device memory, {:.2f} GiB are free",
                                    static_cast<double>(bytes) / 0x1p30, static_cast<double>(free_bytes()) / 0x1p30));
    }
    check(error, "cudaMalloc");
    return data;
  }
  void release(void* data) noexcept override { (void)cudaFree(data); }
  std::size_t free_bytes() override {
    std::size_t free = 0, total = 0;
    CHECK(cudaMemGetInfo(&free, &total));
    return free;
  }
  void upload(void* device, const void* host, std::size_t bytes) override {
    CHECK(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
  }
  void download(void* host, const void* device, std::size_t bytes) override {
    CHECK(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_));
  }
  void fill_bytes(void* data, unsigned char value, std::size_t bytes) override {
    CHECK(cudaMemsetAsync(data, value, bytes, stream_));
  }

  void fill_normal(DType dtype, void* data, std::int64_t count, double mean, double stddev,
                   std::uint64_t seed) override {
    CHECK(
        harness::fill_normal(dtype, data, count, static_cast<float>(mean), static_cast<float>(stddev), seed, stream_));
  }

  std::uint64_t checksum(const void* data, std::size_t bytes) override {
    CHECK(cudaMemsetAsync(scalar_, 0, sizeof(unsigned long long), stream_));
    CHECK(harness::checksum(data, bytes, scalar_, stream_));
    std::uint64_t sum = 0;
    download(&sum, scalar_, sizeof sum);
    return sum;
  }

  std::vector<double> gather(DType dtype, const void* data, std::span<const std::int64_t> elements) override {
    const auto count = static_cast<std::int64_t>(elements.size());
    if (count == 0) return {};
    Buffer indices(*this, elements.size_bytes());
    Buffer values(*this, elements.size() * sizeof(double));
    upload(indices.data(), elements.data(), elements.size_bytes());
    CHECK(harness::gather(dtype, data, static_cast<const std::int64_t*>(indices.data()),
                          static_cast<double*>(values.data()), count, stream_));
    std::vector<double> out(elements.size());
    download(out.data(), values.data(), out.size() * sizeof(double));
    return out;
  }

  Difference compare(DType dtype, const void* a, const void* b, std::int64_t count, double rms) override {
    Buffer parts(*this, harness::kBlocks * sizeof(harness::ComparePart));
    CHECK(harness::compare(dtype, a, b, count, rms, static_cast<harness::ComparePart*>(parts.data()), stream_));
    std::vector<harness::ComparePart> merged(harness::kBlocks);
    download(merged.data(), parts.data(), parts.bytes());
    Difference difference;
    double squared_error = 0, squared = 0;
    for (const harness::ComparePart& part : merged) {
      squared_error += part.squared_error;
      squared += part.squared;
      const bool newly_not_finite = part.not_finite != 0 && difference.all_finite;
      if (newly_not_finite) difference.all_finite = false;
      if (newly_not_finite || (difference.all_finite && !(part.max_error <= difference.max_error)))
        difference.worst = part.worst;
      difference.max_error = std::max(difference.max_error, part.max_error);
    }
    difference.l2_error = squared > 0 ? std::sqrt(squared_error / squared) : std::sqrt(squared_error);
    return difference;
  }

  void synchronize() override {
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaGetLastError());
  }

  bool try_launch(const Launch& launch) override {
    const Status status = launch();
    if (!status.ok()) (void)cudaGetLastError();  // a refusal leaves it behind; a failed device shows below
    synchronize();
    return status.ok();
  }

  std::vector<double> time_cold(const Launch& launch, int samples,
                                std::span<const std::pair<void*, std::size_t>>) override {
    return timed(
        samples, 1, [&] { throw_if_failed(launch()); }, /*flush=*/true);
  }

  std::vector<double> time_warm(const Launch& launch, int samples, int repeats) override {
    const Graph graph(stream_, launch, repeats);
    CHECK(cudaGraphLaunch(graph.executable, stream_));
    return timed(
        samples, repeats, [&] { CHECK(cudaGraphLaunch(graph.executable, stream_)); }, /*flush=*/false);
  }

  std::unique_ptr<Recording> record(const Launch& launch) override {
    struct GraphRecording final : Recording {
      GraphRecording(cudaStream_t stream_, const Launch& launch) : stream(stream_), graph(stream_, launch, 1) {}
      void replay() override { CHECK(cudaGraphLaunch(graph.executable, stream)); }
      cudaStream_t stream;
      Graph graph;
    };
    return std::make_unique<GraphRecording>(stream_, launch);
  }

  void flush_cache() override {
    CHECK(harness::flush_l2(flush_, flush_bytes_, reinterpret_cast<unsigned*>(scalar_), description_.info.sm_count,
                            stream_));
  }

 private:
  // `repeats` launches, captured from the stream.
  struct Graph {
    Graph(cudaStream_t stream, const Launch& launch, int repeats) {
      CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      Status status = success();
      try {
        for (int i = 0; i < repeats && status.ok(); ++i) status = launch();
      } catch (...) {  // a stream that is still captured would spoil all that follows
        (void)cudaStreamEndCapture(stream, &graph);
        (void)cudaGetLastError();
        destroy();
        throw;
      }
      const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
      try {
        throw_if_failed(status);
        CHECK(ended);
        if (!has_kernel(graph)) throw std::runtime_error("its launch records no kernel in a CUDA graph");
        CHECK(cudaGraphInstantiate(&executable, graph, 0));
      } catch (...) {
        (void)cudaGetLastError();
        destroy();
        throw;
      }
    }
    ~Graph() { destroy(); }
    Graph(const Graph&) = delete;
    void destroy() noexcept {
      if (executable != nullptr) (void)cudaGraphExecDestroy(executable);
      if (graph != nullptr) (void)cudaGraphDestroy(graph);
      executable = nullptr;
      graph = nullptr;
    }
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
  };

  template <class Enqueue>
  std::vector<double> timed(int samples, int repeats, const Enqueue& enqueue, bool flush) {
    std::vector<double> times;
    for (int done = 0; done < samples; done += kQueued)
      timed_group(std::min(kQueued, samples - done), repeats, enqueue, flush, times);
    return times;
  }

  template <class Enqueue>
  void timed_group(int samples, int repeats, const Enqueue& enqueue, bool flush, std::vector<double>& times) {
    volatile int* gate = gate_;
    gate[0] = 0;
    gate[1] = 0;
    std::vector<Event> begin(static_cast<std::size_t>(samples)), end(static_cast<std::size_t>(samples));
    CHECK(harness::wait_for_host(gate_, gate_ + 1, kGateTimeoutNs, stream_));
    try {
      for (std::size_t i = 0; i < begin.size(); ++i) {
        if (flush) flush_cache();
        CHECK(cudaEventRecord(begin[i], stream_));
        enqueue();
        CHECK(cudaEventRecord(end[i], stream_));
      }
    } catch (...) {
      gate[0] = 1;
      (void)cudaDeviceSynchronize();
      throw;
    }
    gate[0] = 1;
    synchronize();
    if (gate[1] != 0)
      throw DeviceError("the queue did not fill within 5 s of the gate closing: a launch waits for the device", false);
    for (std::size_t i = 0; i < begin.size(); ++i) {
      float milliseconds = 0;
      CHECK(cudaEventElapsedTime(&milliseconds, begin[i], end[i]));
      times.push_back(1e3 * static_cast<double>(milliseconds) / repeats);
    }
  }

  void* flush_ = nullptr;
  std::size_t flush_bytes_ = 0;
  unsigned long long* scalar_ = nullptr;
  int* gate_ = nullptr;
};

}  // namespace

std::string cuda_error_text(int error) {
  const auto code = static_cast<cudaError_t>(error);
  return fmt::format("{} ({})", cudaGetErrorString(code), cudaGetErrorName(code));
}

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
    CudaDevice device{index, {}, {}};
    cudaDeviceProp properties{};
    std::array<char, 32> bus_id{};
    if (cudaGetDeviceProperties(&properties, index) == cudaSuccess) device.name = properties.name;
    if (cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), index) == cudaSuccess)
      device.pci_bus_id = bus_id.data();
    (void)cudaGetLastError();
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace noisefloor
