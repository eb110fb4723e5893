#include "kernels/core/tensor.h"

#include <string_view>

namespace noisefloor {

void TensorVisitor::describe(const TensorName& name, const Extents& shape, DType dtype, Role role, const Fill& fill) {
  if (rules_ != nullptr) {
    const std::optional<DType> its_own = dtype == kNoRow ? std::nullopt : std::optional(dtype);
    rules_->push_back({name.name, name.meaning, condition_, {shape.all().begin(), shape.all().end()}, its_own, role});
    return;
  }
  if (!holds_) return;
  TensorSpec& spec = specs_->emplace_back(TensorSpec{name.name, {}, dtype, role, fill, name.meaning});
  for (const char* const extent : shape.all()) spec.shape.push_back(symbols_->evaluate(formula_of(extent)).value());
}

}  // namespace noisefloor
