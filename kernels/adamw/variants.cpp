// The variants of adamw, best last. What each does is in README.md.
#include "kernels/adamw/adamw.h"

namespace noisefloor::adamw {
namespace {

constexpr Definition::Variant kVariants[] = {
    NOISEFLOOR_HOST(),
    {kNaive, not_written("comes next")},
    {kTensorCoreSm80,
     not_written("no sum of products: each parameter's update is its own, with a root and a division")},
    {kPtxSm90a, not_written("a later step of training: tiled streams at what memory gives")},
    {kTiled, not_written("comes next")},
};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::adamw
