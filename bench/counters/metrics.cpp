#include "bench/counters/metrics.h"

#include <algorithm>
#include <array>

#include "kernels/core/fields.h"

namespace noisefloor {
namespace {

// Those that fill a row: the column of that name (reports/run/columns.def). The bytes that DRAM and L2 move are counted
// there, so they include the write-back of dirty lines that a launch finds in L2.
constexpr std::array kRowMetrics = {
    Metric{"dram_read_bytes", "dram__bytes_read.sum", "B", "bytes read from DRAM"},
    Metric{"dram_write_bytes", "dram__bytes_write.sum", "B", "bytes written to DRAM"},
    Metric{"l2_bytes", "lts__t_bytes.sum", "B",
           "bytes through L2: requests of SMs, fills, write-backs, and traffic between its partitions"},
    Metric{"occupancy_pct", "sm__warps_active.avg.pct_of_peak_sustained_active", "%",
           "warps in flight over those an SM can hold, while it has any"},
    Metric{"tensor_pipe_pct", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", "%",
           "cycles in which the tensor pipe was busy, while an SM had work"},
};

constexpr std::array kOtherMetrics = {
    Metric{"gpu_time", "gpu__time_duration.sum", "ns",
           "time under the profiler; for comparing with ncu, never for a row"},
    Metric{"sm_clock", "gpc__cycles_elapsed.avg.per_second", "Hz",
           "SM clock during the launch, under the profiler; for comparing with ncu, never for a row"},
    Metric{"sm_cycles_active", "sm__cycles_active.avg", "1", "cycles in which an SM had work, averaged over SMs"},
    Metric{"fp32_add", "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum", "1",
           "fp32 additions executed by threads"},
    Metric{"fp32_mul", "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum", "1",
           "fp32 multiplications executed by threads"},
    Metric{"fp32_fma", "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", "1",
           "fp32 multiply-adds executed by threads (two FLOPs each)"},
};

constexpr auto kMetrics = [] {
  std::array<Metric, kRowMetrics.size() + kOtherMetrics.size()> all{};
  std::ranges::copy(kOtherMetrics, std::ranges::copy(kRowMetrics, all.begin()).out);
  return all;
}();

constexpr std::array kChips = {"TU102", "TU104", "GA100", "GA102", "AD102", "GH100", "GB100"};

}  // namespace

std::span<const Metric> metrics() {
  return kMetrics;
}

std::span<const Metric> row_metrics() {
  return metrics().first(kRowMetrics.size());
}

const Metric& metric(std::string_view name) {
  std::vector<std::string> known;
  for (const Metric& candidate : kMetrics) {
    if (name == candidate.name) return candidate;
    known.emplace_back(candidate.name);
  }
  throw InvalidInput("unknown metric '" + std::string(name) + "'" + did_you_mean(name, known));
}

std::span<const char* const> checked_chips() {
  return kChips;
}

}  // namespace noisefloor
