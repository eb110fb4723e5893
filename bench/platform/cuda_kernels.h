// The kernels the harness itself needs: random numbers, checksums, comparison, cache flush, the gate before timed
// launches, and launches without work. All enqueue on `stream` and return the launch's error.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "bench/platform/comparison.h"
#include "kernels/core/dtype.h"

namespace noisefloor::harness {

constexpr int kBlocks = 1024;  // enough for every device's SMs, few enough to merge on the host

cudaError_t fill_normal(DType dtype, void* data, std::int64_t count, float mean, float stddev, std::uint64_t seed,
                        cudaStream_t stream);

// Adds to *sum, which the caller sets to 0.
cudaError_t checksum(const void* data, std::uint64_t bytes, unsigned long long* sum, cudaStream_t stream);

// kBlocks partial results, for merged().
cudaError_t compare(DType dtype, const void* a, const Expected& b, std::int64_t count, double rms, ComparePart* parts,
                    cudaStream_t stream);

// Reads a buffer larger than the L2 cache, which leaves it full of clean lines that are nobody's input: unlike a
// memset, it leaves no dirty lines whose write-back the timed launch would pay for.
cudaError_t flush_l2(const void* data, std::size_t bytes, unsigned* sink, int sm_count, cudaStream_t stream);

// Holds the stream until the host opens the gate, so that everything behind it is already queued when it runs. Gives up
// after `timeout_ns` (the host then never filled the queue) and says so.
cudaError_t wait_for_host(const int* open, int* timed_out, unsigned long long timeout_ns, cudaStream_t stream);

// A kernel without work: what it takes in a chain is its edge.
cudaError_t do_nothing(cudaStream_t stream);

}  // namespace noisefloor::harness
