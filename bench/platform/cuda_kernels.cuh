// The kernels the harness itself needs: random numbers, checksums, comparison, cache flush and the gate before timed launches.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "bench/platform/random.h"
#include "kernels/core/dtype.h"

namespace noisefloor::harness {

__device__ inline double load_as_double(DType dtype, const void* data, std::int64_t i) {
  switch (dtype) {
    case DType::bf16:
      return static_cast<float>(static_cast<const __nv_bfloat16*>(data)[i]);
    case DType::fp16:
      return static_cast<float>(static_cast<const __half*>(data)[i]);
    case DType::fp64:
      return static_cast<const double*>(data)[i];
    case DType::int32:
      return static_cast<const std::int32_t*>(data)[i];
    case DType::int64:
      return static_cast<double>(static_cast<const std::int64_t*>(data)[i]);
    case DType::uint8:
      return static_cast<const std::uint8_t*>(data)[i];
    default:
      return static_cast<const float*>(data)[i];
  }
}

__device__ inline void store_float(DType dtype, void* data, std::int64_t i, float value) {
  switch (dtype) {
    case DType::bf16:
      static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(value);
      return;
    case DType::fp16:
      static_cast<__half*>(data)[i] = __float2half_rn(value);
      return;
    default:
      static_cast<float*>(data)[i] = value;
  }
}

static __global__ void fill_normal(DType dtype, void* data, std::int64_t count, float mean, float stddev,
                                   std::uint64_t seed) {
  const std::int64_t blocks = (count + 3) / 4;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; block < blocks; block += stride) {
    float numbers[4];
    normal_block(seed, static_cast<std::uint64_t>(block), numbers);
    for (int j = 0; j < 4; ++j)
      if (block * 4 + j < count) store_float(dtype, data, block * 4 + j, mean + stddev * numbers[j]);
  }
}

static __global__ void checksum(const unsigned char* data, std::uint64_t bytes, unsigned long long* sum) {
  const std::uint64_t words = (bytes + 3) / 4;
  unsigned long long part = 0;
  for (std::uint64_t i = blockIdx.x * static_cast<std::uint64_t>(blockDim.x) + threadIdx.x; i < words;
       i += static_cast<std::uint64_t>(gridDim.x) * blockDim.x) {
    std::uint32_t word = 0;
    if (i * 4 + 4 <= bytes) {
      word = *reinterpret_cast<const std::uint32_t*>(data + i * 4);
    } else {
      for (std::uint64_t j = i * 4; j < bytes; ++j) word |= static_cast<std::uint32_t>(data[j]) << (8 * (j - i * 4));
    }
    part += hashed_word(word, i);
  }
  for (int offset = 16; offset > 0; offset /= 2) part += __shfl_down_sync(0xffffffffu, part, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(sum, part);
}

static __global__ void gather(DType dtype, const void* data, const std::int64_t* elements, double* values, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) values[i] = load_as_double(dtype, data, elements[i]);
}

// One partial result per block; the host merges them.
struct ComparePart {
  double max_error, squared_error, squared;
  std::int64_t worst;
  int not_finite;
};

static __global__ void compare(DType dtype, const void* a, const void* b, std::int64_t count, double rms, ComparePart* parts) {
  ComparePart mine{0, 0, 0, 0, 0};
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const double x = load_as_double(dtype, a, i), y = load_as_double(dtype, b, i);
    if (!isfinite(x)) {
      mine.not_finite = 1;
      mine.worst = i;
      continue;
    }
    const double error = fabs(x - y), relative = error / (fabs(y) + rms);
    if (!(relative <= mine.max_error)) {
      mine.max_error = relative;
      mine.worst = i;
    }
    mine.squared_error += error * error;
    mine.squared += y * y;
  }
  __shared__ ComparePart shared[256];
  shared[threadIdx.x] = mine;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (unsigned t = 1; t < blockDim.x; ++t) {
    const ComparePart& other = shared[t];
    mine.squared_error += other.squared_error;
    mine.squared += other.squared;
    if (other.not_finite > mine.not_finite || (other.not_finite == mine.not_finite && !(other.max_error <= mine.max_error))) {
      mine.max_error = other.max_error;
      mine.worst = other.worst;
      mine.not_finite = other.not_finite;
    }
  }
  parts[blockIdx.x] = mine;
}

// Reads a buffer larger than the L2 cache, which leaves it full of clean lines that are nobody's input: unlike a memset, it
// leaves no dirty lines whose write-back the timed launch would pay for.
static __global__ void flush_l2(const uint4* data, std::int64_t count, unsigned* sink) {
  unsigned sum = 0;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const uint4 value = __ldcg(data + i);
    sum ^= value.x ^ value.y ^ value.z ^ value.w;
  }
  if (sum == 0x9E3779B9u) *sink = sum;  // keeps the loads
}

// Holds the stream until the host opens the gate, so that everything behind it is already queued when it runs. Gives up after
// `timeout_ns` (the host then never filled the queue) and says so.
static __global__ void wait_for_host(const volatile int* open, volatile int* timed_out, unsigned long long timeout_ns) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  while (*open == 0) {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (now - start > timeout_ns) {
      *timed_out = 1;
      return;
    }
  }
}

}  // namespace noisefloor::harness
