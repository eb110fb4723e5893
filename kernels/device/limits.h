// What a grid, and the streaming kernels of kernels/device/stream.cuh, can take; host code, for can_run and launchers.
#pragma once

#include <cstdint>

#include "kernels/core/dtype.h"
#include "kernels/core/variant.h"

namespace noisefloor {

inline constexpr std::int64_t kMaxBlocks = (std::int64_t{1} << 31) - 1;  // gridDim.x, CUDA C++ Programming Guide

// Below 2^31, with room for the grid to round up.
inline constexpr std::int64_t kMaxStreamVectors = (std::int64_t{1} << 31) - (1 << 16);

// Whether `rows` rows of `elements` each can be taken in vectors of 16 bytes that do not cross rows.
inline Support streams(std::int64_t rows, std::int64_t elements, DType dtype) {
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  if (elements * size % 16 != 0) return unsupported("needs rows that are a multiple of 16 bytes long");
  if (rows * (elements * size / 16) > kMaxStreamVectors)
    return unsupported("needs fewer than 2^31 vectors of 16 bytes");
  return supported();
}

// Sums that a device's blocks leave in the workspace (ordered_sums.cuh): as many as the problem has work for, whatever
// the device, so that what a second launch adds in their order has the same bits everywhere.
inline constexpr std::int64_t kMostSums = 4096;
constexpr std::int64_t ordered_sums(std::int64_t elements, std::int64_t of_block) {
  const std::int64_t blocks = (elements + of_block - 1) / of_block;
  return blocks < kMostSums ? blocks : kMostSums;
}
template <class Problem>
std::size_t sums_bytes(const Problem& p, DType, const DeviceInfo&) {
  return static_cast<std::size_t>(partial_sums(p)) * sizeof(float);
}

// can_run of ops on `batch` images of `elements` each.
template <class Problem>
Support images_stream(const Problem& p, DType dtype) {
  return streams(p.batch, p.elements, dtype);
}
// In 16-bit elements, by a grid with a row of blocks for each image (gridDim.y).
template <class Problem>
Support half_images_stream(const Problem& p, DType dtype) {
  if (dtype == DType::fp32) return unsupported("needs bf16 or fp16");
  if (p.batch > 65535) return unsupported("needs a batch of at most 65535");
  return images_stream(p, dtype);
}

}  // namespace noisefloor
