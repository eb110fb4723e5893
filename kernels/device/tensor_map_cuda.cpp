#include "kernels/device/tensor_map.h"

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include "kernels/core/cuda_status.h"

namespace noisefloor {
namespace {

constexpr unsigned kDriverVersion = 12000;  // the release that introduced cuTensorMapEncodeTiled

// The element type, and how box rows of so many bytes are swizzled.
Status find_layout(DType dtype, std::size_t row_bytes, CUtensorMapDataType& type, CUtensorMapSwizzle& swizzle) {
  if (dtype != DType::bf16 && dtype != DType::fp16 && dtype != DType::fp32)
    return failure(StatusCode::invalid_argument, "TMA: needs bf16, fp16 or fp32");
  type = dtype == DType::bf16   ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
         : dtype == DType::fp16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  if (row_bytes != 32 && row_bytes != 64 && row_bytes != 128)
    return failure(StatusCode::invalid_argument, "TMA: a swizzle needs box rows of 32, 64 or 128 bytes");
  swizzle = row_bytes == 32   ? CU_TENSOR_MAP_SWIZZLE_32B
            : row_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                              : CU_TENSOR_MAP_SWIZZLE_128B;
  return success();
}

// The driver's encoder `name`.
template <class Encoder>
Status find_encoder(const char* name, Encoder& encode) {
  void* symbol = nullptr;
  cudaDriverEntryPointQueryResult found;
  NOISEFLOOR_CUDA(cudaGetDriverEntryPointByVersion(name, &symbol, kDriverVersion, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess || symbol == nullptr)
    return failure(StatusCode::cuda_error, "the driver has no tensor map encoder");
  encode = reinterpret_cast<Encoder>(symbol);
  return success();
}

}  // namespace

Status encode_tensor_map(CUtensorMap& map, const MatrixMap& matrix) {
  const std::int64_t row = matrix.columns;
  return encode_strided_map(map, StridedMap{matrix.dtype,
                                            matrix.data,
                                            matrix.count == 0 ? 2 : 3,
                                            {matrix.columns, matrix.rows, matrix.count},
                                            {row, row * matrix.rows},
                                            {matrix.box_columns, matrix.box_rows, 1},
                                            matrix.swizzle});
}

Status encode_strided_map(CUtensorMap& map, const StridedMap& tensor) {
  if (tensor.rank < 2 || tensor.rank > 5) return failure(StatusCode::invalid_argument, "TMA: needs rank 2 to 5");
  const std::size_t element = size_of(tensor.dtype);
  CUtensorMapDataType type;
  CUtensorMapSwizzle swizzle;
  const std::size_t row_bytes = tensor.swizzle ? static_cast<std::size_t>(tensor.box[0]) * element : 128;
  if (const Status status = find_layout(tensor.dtype, row_bytes, type, swizzle); !status.ok()) return status;
  if (!tensor.swizzle) swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
  PFN_cuTensorMapEncodeTiled_v12000 encode = nullptr;
  if (const Status status = find_encoder("cuTensorMapEncodeTiled", encode); !status.ok()) return status;

  cuuint64_t extents[5], strides[4];
  cuuint32_t box[5];
  for (int i = 0; i < tensor.rank; ++i) {
    extents[i] = static_cast<cuuint64_t>(tensor.extents[i]);
    box[i] = static_cast<cuuint32_t>(tensor.box[i]);
    if (i > 0) strides[i - 1] = static_cast<cuuint64_t>(tensor.strides[i - 1]) * element;
  }
  const cuuint32_t element_strides[] = {1, 1, 1, 1, 1};
  const CUresult result = encode(&map, type, static_cast<cuuint32_t>(tensor.rank), const_cast<void*>(tensor.data),
                                 extents, strides, box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) return failure(StatusCode::invalid_argument, "cuTensorMapEncodeTiled");
  return success();
}

Status encode_im2col_map(CUtensorMap& map, const ImageMap& image) {
  const std::size_t element = size_of(image.dtype);
  CUtensorMapDataType type;
  CUtensorMapSwizzle swizzle;
  const std::size_t row_bytes = static_cast<std::size_t>(image.box_channels) * element;
  if (const Status status = find_layout(image.dtype, row_bytes, type, swizzle); !status.ok()) return status;
  PFN_cuTensorMapEncodeIm2col_v12000 encode = nullptr;
  if (const Status status = find_encoder("cuTensorMapEncodeIm2col", encode); !status.ok()) return status;

  const auto wide = [](std::int64_t value) { return static_cast<cuuint64_t>(value); };
  const cuuint64_t extents[] = {wide(image.channels), wide(image.w), wide(image.h), wide(image.images)};
  cuuint64_t strides[] = {wide(image.channels) * element, 0, 0};
  strides[1] = strides[0] * extents[1];
  strides[2] = strides[1] * extents[2];
  // The box reaches from the lower corner to the image's last pixel plus the upper corner.
  const int lower[] = {image.first_w, image.first_h};
  const int upper[] = {image.first_w + (image.out_w - 1) * image.stride_w - (image.w - 1),
                       image.first_h + (image.out_h - 1) * image.stride_h - (image.h - 1)};
  const cuuint32_t steps[] = {1, static_cast<cuuint32_t>(image.stride_w), static_cast<cuuint32_t>(image.stride_h), 1};
  const CUresult result = encode(&map, type, 4, const_cast<void*>(image.data), extents, strides, lower, upper,
                                 static_cast<cuuint32_t>(image.box_channels), static_cast<cuuint32_t>(image.box_pixels),
                                 steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) return failure(StatusCode::invalid_argument, "cuTensorMapEncodeIm2col");
  return success();
}

}  // namespace noisefloor
