// The DRAM traffic of the streaming problems against their compulsory bytes. A launch ends with 8 to 26 MB of its
// results still dirty in an H200's L2, which its own counters lack: here they are counted until a read of other memory
// has driven them out.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "bench/counters/range_profiler.h"
#include "bench/measure/bound_case.h"
#include "bench/sweep/problem_files.h"

namespace noisefloor {
namespace {

constexpr int kReadThreads = 256;
constexpr std::size_t kEvicting = std::size_t{256} << 20;  // four times an H200's L2

__global__ void __launch_bounds__(kReadThreads) read_kernel(const uint4* data, unsigned* sink) {
  const uint4 v = data[std::size_t{blockIdx.x} * kReadThreads + threadIdx.x];
  if ((v.x ^ v.y ^ v.z ^ v.w) == 0x9e3779b9u) *sink = v.x;  // never with zeros, but the compiler cannot know
}

class Evictor {
 public:
  Evictor() {
    EXPECT_EQ(cudaMalloc(&data_, kEvicting), cudaSuccess);
    EXPECT_EQ(cudaMemset(data_, 0, kEvicting), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&sink_, sizeof(unsigned)), cudaSuccess);
  }
  ~Evictor() {
    cudaFree(data_);
    cudaFree(sink_);
  }
  Evictor(const Evictor&) = delete;
  Evictor& operator=(const Evictor&) = delete;
  void read(cudaStream_t stream) const {
    read_kernel<<<kEvicting / sizeof(uint4) / kReadThreads, kReadThreads, 0, stream>>>(static_cast<const uint4*>(data_),
                                                                                       static_cast<unsigned*>(sink_));
  }

 private:
  void* data_ = nullptr;
  void* sink_ = nullptr;
};

// Variants that are there to stream, and read their inputs once: of the mma ones layernorm's does not, of the tiled
// ones group norm's.
bool reads_once(const std::string& op, const Implementation& one) {
  return one.is(Kind::ptx) || (one.is(Kind::tiled) && op != "groupnorm");
}

TEST(StreamedBytes, AreTheCompulsoryOnes) {
  const CounterProbe probe = probe_counters();
  if (probe.status != CounterStatus::ok) GTEST_SKIP() << to_string(probe.status) << ": " << probe.message;
  const std::unique_ptr<Platform> device = make_cuda_platform(0);
  const Evictor evictor;
  int counted = 0;
  for (const ProblemEntry& entry : in_networks(load_problems(default_problem_folder()), {"stream"})) {
    const DType dtype = DType::bf16;
    const double compulsory = entry.op->cost(entry.problem, dtype).bytes;
    ASSERT_GE(compulsory, 1e8) << entry.text;
    Fixture fixture(*device, *entry.entry, entry.problem, dtype, 1);
    for (const ImplementationPtr& one : entry.entry->implementations) {
      if (!reads_once(entry.op->name, *one) || !one->built ||
          !runs_on(one->arch, device->description().info.compute_capability) || !one->can_run(entry.problem, dtype))
        continue;
      SCOPED_TRACE(entry.op->name + " " + entry.text + " " + one->name);
      BoundCase bound(fixture, *one);
      const Launch launch = bound.launch();
      throw_if_failed(launch());
      device->synchronize();
      const cudaStream_t stream = device->context().stream;
      const auto launch_and_evict = [&] {
        throw_if_failed(launch());
        evictor.read(stream);
      };
      const std::map<std::string, double> values =
          open_range_profiler()->measure([&](int) { evictor.read(stream); }, launch_and_evict);
      const double moved =
          values.at("dram_read_bytes") + values.at("dram_write_bytes") - static_cast<double>(kEvicting);
      EXPECT_NEAR(moved / compulsory, 1, 0.05);
      RecordProperty(entry.op->name + "/" + entry.text + "/" + one->name, std::to_string(moved / compulsory));
      std::printf("%-12s %-64s %-10s %.3f of the compulsory bytes\n", entry.op->name.c_str(), entry.text.c_str(),
                  one->name.c_str(), moved / compulsory);
      ++counted;
    }
  }
  EXPECT_GT(counted, 0);
}

}  // namespace
}  // namespace noisefloor
