// TMA descriptors. Needs CUDA's headers but no link to libcuda: the encoder comes from the driver through the runtime.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/core/dtype.h"
#include "kernels/core/status.h"

namespace noisefloor {

// Describes a dense row-major matrix [rows, columns] at the device pointer `data`, of which TMA moves boxes of
// [box_rows, box_columns] to or from shared memory, where their rows lie one after the other. Requires data 16-byte
// aligned, columns * size_of(dtype) and box_columns * size_of(dtype) multiples of 16, box extents of 1 to 256. With
// `swizzle`, box rows are w = 32, 64 or 128 bytes and the 16-byte chunk c of row r lies at chunk c ^ (r / (128 / w) %
// (w / 16)) of its row, so that neither rows nor columns of chunks collide in a bank. `count` such matrices, one behind
// the other, make a map of three dimensions, each of less than 2^40 bytes; 0 is a map of two. invalid_argument when
// that does not hold, cuda_error when the driver lacks the encoder (older than CUDA 12.0). CUDA Driver API, "Tensor Map
// Object Management".
struct MatrixMap {
  DType dtype;
  const void* data;
  std::int64_t rows;
  std::int64_t columns;
  int box_rows;
  int box_columns;
  bool swizzle = true;
  std::int64_t count = 0;
};

Status encode_tensor_map(CUtensorMap& map, const MatrixMap& matrix);

// Describes a strided tensor of `rank` dimensions, 2 to 5, of which TMA moves boxes. Extents, strides and boxes from
// the contiguous dimension outwards; strides[i] is that of dimension i + 1, in elements. Requires data 16-byte aligned,
// strides in bytes multiples of 16 and below 2^40, extents of at most 2^32, box extents of 1 to 256, and box rows of
// 32, 64 or 128 bytes, which are swizzled as above unless `swizzle` is false; row r of the box counts through the
// dimensions from 1 on. Errors as above.
struct StridedMap {
  DType dtype;
  const void* data;
  int rank;
  std::int64_t extents[5];
  std::int64_t strides[4];
  int box[5];
  bool swizzle = true;
};

Status encode_strided_map(CUtensorMap& map, const StridedMap& tensor);

// Describes channels-last images [images, h, w, channels] (2 bytes an element) for im2col loads: a load takes
// `box_channels` (64: rows of 128 bytes, swizzled as above) of `box_pixels` (1 to 1024) positions, which walk the
// bounding box of each image in steps of stride_w and stride_h (1 to 8): it starts at (first_h, first_w) and has out_h
// x out_w positions. Requires data 16-byte aligned, channels a multiple of 8, and corners of the box within 128 of
// those of the image. Status as above. CUDA Driver API, cuTensorMapEncodeIm2col.
struct ImageMap {
  DType dtype;
  const void* data;
  int images, h, w, channels;
  int first_h, first_w;
  int out_h, out_w;
  int stride_h, stride_w;
  int box_channels;
  int box_pixels;
};

Status encode_im2col_map(CUtensorMap& map, const ImageMap& image);

}  // namespace noisefloor
