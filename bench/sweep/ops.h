// What a sweep can run: every op of the catalogue, and behind them whole networks.
#pragma once

#include <span>
#include <string_view>

#include "kernels/catalogue.h"

namespace noisefloor {

// Networks last, so that their plans find the times of the ops before them.
std::span<const Op* const> swept_ops();
const Op* find_swept_op(std::string_view name);  // null when there is none

}  // namespace noisefloor
