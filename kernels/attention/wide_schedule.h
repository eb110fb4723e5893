// How ptx_sm90a_wide cuts a problem. Host code, pure functions: testable without a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/core/choice.h"

namespace noisefloor::attention {

inline constexpr std::int64_t kWideRows = 64;  // queries of a block
inline constexpr std::int64_t kWidePair =
    2;  // blocks of a cluster, with neighbouring queries: keys and values come once
inline constexpr std::int64_t kWideKeys = 128;  // that it takes at a time

// Blocks that would take all keys, whole clusters of them.
std::int64_t wide_blocks(const Problem& problem);

// Among how many blocks the keys of each query may be shared, the estimate's choice first; and that choice.
std::vector<int> wide_splits(const Problem& problem, int sm_count);
int choose_wide_splits(const Problem& problem, int sm_count);

// Sums of each split in fp32 and, behind them, a row's maximum and sum; none where the keys are not split.
std::size_t wide_partial_bytes(const Problem& problem, int splits);
// Of any choice.
std::size_t wide_workspace_bytes(const Problem& problem, DType dtype, const DeviceInfo& device);

// The tuner's choices, and what one of their texts says.
std::vector<Choice> wide_choices(const Problem& problem, DType dtype, const DeviceInfo& device);
std::optional<int> parse_wide_splits(const Problem& problem, std::string_view choice, int sm_count);
Status launch_wide_choice(const Problem& problem, DType dtype, const Tensors& tensors, const Scratch& scratch,
                          const LaunchContext& context, std::string_view choice);

}  // namespace noisefloor::attention
