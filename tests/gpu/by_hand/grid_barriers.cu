// What does a barrier of the whole grid cost beside the end of one launch and the start of the next? Run by hand; no
// test. usage: grid_barriers [ROUNDS]
//
//   nvcc -std=c++20 -O2 -gencode=arch=compute_90a,code=sm_90a grid_barriers.cu -o grid_barriers && ./grid_barriers
//
// In each of ROUNDS (256) rounds every block reads what another block wrote in the round before, adds one, and writes
// it: the least work that needs the barrier. A line a way: one cooperative kernel with a barrier behind each round; a
// launch a round in a CUDA graph with programmatic edges; the same with ordinary edges. Blocks ask for no shared
// memory, or for so much, as products do, that the next launch's find no room beside them. Microseconds a round are
// medians of 31 runs, which wait behind a kernel until all is submitted. A result that is wrong ends with 1.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int kRuns = 31;
constexpr int kApart = 37;  // a block reads what the one so many behind it wrote: another SM's

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "grid_barriers: error: %s\n", cudaGetErrorString(error));
  std::exit(2);
}

// One number a block and round's parity, each in a sector of its own.
constexpr int kStride = 8;

__device__ void round_of(int* numbers, int round) {
  if (threadIdx.x != 0) return;
  const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  const int from = (round % 2 * blocks + (block + kApart) % blocks) * kStride;
  const int to = ((round + 1) % 2 * blocks + block) * kStride;
  numbers[to] = __ldcg(numbers + from) + 1;
}

// All threads of a block, then all blocks: one addition a block, and one thread that waits for all of them.
__device__ void barrier(unsigned* arrived, int round) {
  __syncthreads();
  if (threadIdx.x == 0) {
    const unsigned all = gridDim.x * static_cast<unsigned>(round + 1);
    unsigned seen = 0;
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
    while (seen < all);
  }
  __syncthreads();
}

__global__ void rounds_with_barriers(int* numbers, unsigned* arrived, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    round_of(numbers, round);
    barrier(arrived, round);
  }
}

__global__ void one_round(int* numbers, int round) {
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
  round_of(numbers, round);
}

// So that what the host takes to submit is in no time.
__global__ void wait_for_host(const volatile int* go) {
  while (*go == 0) {
  }
}

struct Buffers {
  int* numbers;
  unsigned* arrived;
  int* go;  // the host's
  int blocks, threads, rounds;
  std::size_t shared;  // bytes a block
  cudaStream_t stream;

  void clear() const {
    check(cudaMemsetAsync(numbers, 0, sizeof(int) * 2 * kStride * static_cast<std::size_t>(blocks), stream));
    check(cudaMemsetAsync(arrived, 0, sizeof(unsigned), stream));
  }
};

void enqueue_kernel(const Buffers& b) {
  void* arguments[] = {const_cast<int**>(&b.numbers), const_cast<unsigned**>(&b.arrived), const_cast<int*>(&b.rounds)};
  check(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(rounds_with_barriers), dim3(b.blocks),
                                    dim3(b.threads), arguments, b.shared, b.stream));
}

cudaGraphExec_t graph_of_launches(const Buffers& b, bool programmatic) {
  check(cudaStreamBeginCapture(b.stream, cudaStreamCaptureModeThreadLocal));
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  for (int round = 0; round < b.rounds; ++round) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(b.blocks);
    config.blockDim = dim3(b.threads);
    config.dynamicSmemBytes = b.shared;
    config.stream = b.stream;
    config.attrs = &early;
    config.numAttrs = programmatic && round > 0;
    check(cudaLaunchKernelEx(&config, one_round, b.numbers, round));
  }
  cudaGraph_t graph;
  check(cudaStreamEndCapture(b.stream, &graph));
  cudaGraphExec_t ready;
  check(cudaGraphInstantiate(&ready, graph, 0));
  check(cudaGraphDestroy(graph));
  return ready;
}

// Microseconds a round, the median of all runs; every block must have counted to `rounds`.
template <class Enqueue>
double microseconds_of(const Buffers& b, const Enqueue& enqueue) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  std::vector<float> times;
  std::vector<int> numbers(2 * kStride * static_cast<std::size_t>(b.blocks));
  for (int run = 0; run < kRuns; ++run) {
    b.clear();
    *static_cast<volatile int*>(b.go) = 0;
    wait_for_host<<<1, 1, 0, b.stream>>>(b.go);
    check(cudaGetLastError());
    check(cudaEventRecord(begin, b.stream));
    enqueue();
    check(cudaEventRecord(end, b.stream));
    *static_cast<volatile int*>(b.go) = 1;
    check(cudaStreamSynchronize(b.stream));
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end));
    times.push_back(1000 * milliseconds / static_cast<float>(b.rounds));
    check(cudaMemcpy(numbers.data(), b.numbers, numbers.size() * sizeof(int), cudaMemcpyDeviceToHost));
    for (int block = 0; block < b.blocks; ++block)
      if (numbers[static_cast<std::size_t>((b.rounds % 2 * b.blocks + block) * kStride)] != b.rounds) {
        std::fprintf(stderr, "grid_barriers: block %d did not count to %d\n", block, b.rounds);
        std::exit(1);
      }
  }
  check(cudaEventDestroy(begin));
  check(cudaEventDestroy(end));
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

}  // namespace

int main(int count, char** arguments) {
  const int rounds = count > 1 ? std::atoi(arguments[1]) : 256;
  if (rounds < 1 || rounds > 10'000) {
    std::fprintf(stderr, "grid_barriers: error: ROUNDS is 1 to 10000\n");
    return 2;
  }
  cudaDeviceProp device;
  check(cudaGetDeviceProperties(&device, 0));
  const int most = static_cast<int>(device.sharedMemPerBlockOptin);
  for (const void* kernel :
       {reinterpret_cast<const void*>(rounds_with_barriers), reinterpret_cast<const void*>(one_round)})
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
  std::printf("%s, %d rounds, us a round\n%8s %8s %8s %10s %14s %10s\n", device.name, rounds, "blocks", "threads",
              "shared", "barriers", "programmatic", "ordinary");
  for (const int shared : {0, most})
    for (const int blocks : {device.multiProcessorCount, device.multiProcessorCount / 2})
      for (const int threads : {128, 384}) {
        Buffers b{nullptr, nullptr, nullptr, blocks, threads, rounds, static_cast<std::size_t>(shared), nullptr};
        check(cudaStreamCreate(&b.stream));
        check(cudaMalloc(&b.numbers, sizeof(int) * 2 * kStride * static_cast<std::size_t>(blocks)));
        check(cudaMalloc(&b.arrived, sizeof(unsigned)));
        check(cudaMallocHost(&b.go, sizeof(int)));
        const cudaGraphExec_t early = graph_of_launches(b, true), ordinary = graph_of_launches(b, false);
        const double with_barriers = microseconds_of(b, [&] { enqueue_kernel(b); });
        const double with_early = microseconds_of(b, [&] { check(cudaGraphLaunch(early, b.stream)); });
        const double with_ordinary = microseconds_of(b, [&] { check(cudaGraphLaunch(ordinary, b.stream)); });
        std::printf("%8d %8d %8d %10.3f %14.3f %10.3f\n", blocks, threads, shared, with_barriers, with_early,
                    with_ordinary);
        check(cudaGraphExecDestroy(early));
        check(cudaGraphExecDestroy(ordinary));
        check(cudaFree(b.numbers));
        check(cudaFree(b.arrived));
        check(cudaFreeHost(b.go));
        check(cudaStreamDestroy(b.stream));
      }
  return 0;
}
