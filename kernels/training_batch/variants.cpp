// The variants of training_batch, best last. What each does is in README.md.
#include "kernels/device/limits.h"
#include "kernels/training_batch/training_batch.h"

namespace noisefloor::training_batch {
namespace {

Support can_run_tiled(const Problem& p, DType) {
  return streams(p.batch, p.elements(), DType::fp32);
}

Support for_ptx_sm90a(const Problem& p, DType dtype) {
  if (p.elements() > std::int64_t{1} << 30) return unsupported("needs images of at most 2^30 elements");
  if (bulk_bytes(p) > kMostBulkBytes) return unsupported("needs four rows of an image beside 16 KiB in 224 KiB; see tiled");
  return can_run_tiled(p, dtype);
}

constexpr Definition::Variant kVariants[] = {
    NOISEFLOOR_HOST(),
    NOISEFLOOR_NAIVE(),
    {kTensorCoreSm80, not_applicable("its images and noise are fp32, of which tensor cores keep 11 bits")},
    NOISEFLOOR_TILED(can_run_tiled),
    NOISEFLOOR_PTX_SM90A(for_ptx_sm90a),
};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::training_batch
