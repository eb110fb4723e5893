// Do edges between the kernels of a CUDA graph have levels, and do kernels with work move by as much? Run by hand; no
// test. usage: edge_series [SECONDS [FILE.csv]]
//
//   nvcc -gencode=arch=compute_90a,code=sm_90a -O2 -std=c++20 -cudart static edge_series.cu -o edge_series
//
// For SECONDS (150) chains of kernels are replayed in turn, twenty times a second: FILE.csv (edge_series.csv) has a
// line for each round, with microseconds a launch. `fresh` chains are captured anew for each line, as those of a row
// are; the others once. `host_read_ns` is a read of pinned host memory by the GPU, where commands may come from. Then
// the quantiles are printed, and how each column follows empty64: where edges have levels that kernels share, the slope
// of the chains with work is 1. Spells of a process rather than of the GPU show in several calls, one after the other.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace {

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "edge_series: error: %s\n", cudaGetErrorString(error));
  std::exit(2);
}

__device__ unsigned long long nanoseconds() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__device__ void wait_for_the_one_before() {  // behind an ordinary edge it has ended already
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

__global__ void nothing() {
  wait_for_the_one_before();
}

// `passes` times over 1 MB, which stays in L2.
constexpr int kVectors = (1 << 20) / 16;
__global__ void stream_l2(const uint4* data, int passes, unsigned* sink) {
  wait_for_the_one_before();
  unsigned sum = 0;
  for (int pass = 0; pass < passes; ++pass)
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < kVectors; i += gridDim.x * blockDim.x)
      sum += __ldcg(data + (i ^ pass)).x;
  if (sum == 0x12345678u) *sink = sum;  // keeps the loads
}

__global__ void gate(const volatile int* open) {
  constexpr unsigned long long kMost = 5'000'000'000;
  const unsigned long long start = nanoseconds();
  while (*open == 0 && nanoseconds() - start < kMost) {
  }
}

// Reads of host memory, each at the place that the one before it names, then a spin: nanoseconds a read, and MHz.
constexpr int kReads = 64, kStride = 1040;
__global__ void read_host(const volatile unsigned* places, double* out) {
  constexpr unsigned long long kSpin = 200'000;
  const unsigned long long start = nanoseconds();
  const long long first = clock64();
  unsigned place = 0;
  for (int i = 0; i < kReads; ++i) place = places[place];
  unsigned long long now = nanoseconds();
  out[0] = static_cast<double>(now - start) / kReads;
  while (now - start < kSpin) now = nanoseconds();
  out[1] = static_cast<double>(clock64() - first) / static_cast<double>(now - start) * 1e3;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Chain {
  const char* name;
  int passes, length;  // no passes: kernels without work
  bool programmatic = false, fresh = false;
  cudaGraphExec_t graph = nullptr;
};

class Chains {
 public:
  Chains() {
    check(cudaStreamCreate(&stream));
    check(cudaMallocHost(&open_, sizeof(int)));
    check(cudaMalloc(&data_, kVectors * sizeof(uint4)));
    check(cudaMemset(data_, 1, kVectors * sizeof(uint4)));
    check(cudaMalloc(&sink_, sizeof(unsigned)));
    for (cudaEvent_t& event : events_) check(cudaEventCreate(&event));
  }

  // Microseconds a launch: the median of nine replays, three at a time behind a gate, so that all are queued first.
  double time(Chain& chain) {
    if (chain.graph == nullptr || chain.fresh) capture(chain);
    check(cudaGraphLaunch(chain.graph, stream));
    std::vector<double> times;
    for (int group = 0; group < 3; ++group) {
      *static_cast<volatile int*>(open_) = 0;
      gate<<<1, 1, 0, stream>>>(open_);
      for (std::size_t i = 0; i < events_.size(); i += 2) {
        check(cudaEventRecord(events_[i], stream));
        check(cudaGraphLaunch(chain.graph, stream));
        check(cudaEventRecord(events_[i + 1], stream));
      }
      *static_cast<volatile int*>(open_) = 1;
      check(cudaStreamSynchronize(stream));
      for (std::size_t i = 0; i < events_.size(); i += 2) {
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, events_[i], events_[i + 1]));
        times.push_back(1e3 * milliseconds / chain.length);
      }
    }
    return median(times);
  }

  // How many passes take so long, behind an ordinary edge.
  int passes_of(double us) {
    int passes = 1;
    for (Chain chain{"", passes, 20, false, true}; time(chain) < us; chain.passes = ++passes) {
    }
    return passes;
  }

  cudaStream_t stream{};

 private:
  void capture(Chain& chain) {
    if (chain.graph != nullptr) check(cudaGraphExecDestroy(chain.graph));
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = chain.passes == 0 ? 1 : 132;
    config.blockDim = chain.passes == 0 ? 32 : 256;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = chain.programmatic ? 1 : 0;
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < chain.length; ++i)
      check(chain.passes == 0
                ? cudaLaunchKernelEx(&config, nothing)
                : cudaLaunchKernelEx(&config, stream_l2, static_cast<const uint4*>(data_), chain.passes, sink_));
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphInstantiate(&chain.graph, graph, 0));
    check(cudaGraphDestroy(graph));
  }

  int* open_ = nullptr;
  uint4* data_ = nullptr;
  unsigned* sink_ = nullptr;
  std::array<cudaEvent_t, 6> events_{};
};

// Medians of seconds, so that the noise of a line hides no level.
std::vector<double> by_second(const std::vector<double>& values) {
  constexpr std::size_t kLines = 20;
  std::vector<double> out;
  for (auto begin = values.begin(); values.end() - begin >= static_cast<std::ptrdiff_t>(kLines); begin += kLines)
    out.push_back(median({begin, begin + kLines}));
  return out;
}

void print_column(const std::string& name, const std::vector<double>& edges, std::vector<double> values) {
  const double x0 = median(edges), y0 = median(values);
  double xx = 0, xy = 0, yy = 0;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const double x = edges[i] - x0, y = values[i] - y0;
    xx += x * x, xy += x * y, yy += y * y;
  }
  std::ranges::sort(values);
  std::printf("%-18s", name.c_str());
  for (const double part : {0.0, 0.05, 0.5, 0.95, 1.0})
    std::printf("%10.3f", values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))]);
  std::printf("%10.2f%12.2f\n", xy / xx, xy / std::sqrt(xx * yy));
}

}  // namespace

int main(int argc, char** argv) {
  using Clock = std::chrono::steady_clock;
  const double seconds = argc > 1 ? std::atof(argv[1]) : 150;
  std::ofstream file(argc > 2 ? argv[2] : "edge_series.csv");
  if (!(seconds >= 3) || !file) return std::fprintf(stderr, "usage: edge_series [SECONDS (from 3) [FILE.csv]]\n"), 2;

  Chains chains;
  const int small = chains.passes_of(3), large = chains.passes_of(20);
  std::vector<Chain> all = {{"empty64", 0, 64},
                            {"empty16", 0, 16},
                            {"empty64_pdl", 0, 64, true},
                            {"empty64_fresh", 0, 64, false, true},
                            {"small64", small, 64},
                            {"small64_pdl", small, 64, true},
                            {"small20_fresh", small, 20, false, true},
                            {"large20", large, 20}};
  unsigned* places = nullptr;
  double* read = nullptr;
  check(cudaMallocHost(&places, sizeof(unsigned) * kReads * kStride));
  check(cudaMallocHost(&read, 2 * sizeof(double)));
  for (unsigned i = 0; i < kReads; ++i) places[i * kStride] = (i + 1) % kReads * kStride;

  std::vector<std::string> names;
  for (const Chain& chain : all) names.push_back(chain.name);
  names.insert(names.end(), {"host_read_ns", "sm_mhz"});
  file << "unix_s";
  for (const std::string& name : names) file << "," << name;
  std::vector<std::vector<double>> columns(names.size());
  for (const auto start = Clock::now(); Clock::now() - start < std::chrono::duration<double>(seconds);) {
    const auto next = Clock::now() + std::chrono::milliseconds(50);
    std::vector<double> line;
    for (Chain& chain : all) line.push_back(chains.time(chain));
    read_host<<<1, 1, 0, chains.stream>>>(places, read);
    check(cudaStreamSynchronize(chains.stream));
    line.insert(line.end(), {read[0], read[1]});
    file << "\n"
         << std::to_string(std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
    for (std::size_t i = 0; i < line.size(); ++i) {
      file << "," << line[i];
      columns[i].push_back(line[i]);
    }
    std::this_thread::sleep_until(next);
  }
  file << "\n";
  const auto edges = by_second(columns[0]);
  std::printf("medians of %zu seconds, of %zu lines\n%-18s", edges.size(), columns[0].size(), "");
  for (const char* title : {"least", "5 %", "median", "95 %", "most", "slope"}) std::printf("%10s", title);
  std::printf("%12s\n", "correlation");
  for (std::size_t i = 0; i < names.size(); ++i) print_column(names[i], edges, by_second(columns[i]));
  return file.flush() ? 0 : 2;
}
