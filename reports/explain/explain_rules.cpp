// The rules of `noisefloor explain`: one rule, one row. docs/explain.md has them as a table.
#include "reports/explain/explain.h"

namespace noisefloor {
namespace {

#define RUN "noisefloor run {op}/{problem}/{dtype}/{variant}{options}"

constexpr ExplainRule kRules[] = {
    // There is no time.
    {"wrong", "status = incorrect", "The result is wrong, so nothing was timed: {reason}.",
     "Run it alone (" RUN "), then under compute-sanitizer."},
    {"failed", "status = cuda_error", "The launch failed: {reason}.", "Run it alone under compute-sanitizer: " RUN "."},
    {"refused", "status = unsupported_problem|unsupported_arch|not_built|no_device",
     "The variant cannot run here ({status}): {reason}.",
     "Take another variant: noisefloor run {op} --problem {problem} --dtype {dtype}{options} says of each whether it "
     "runs, and why not."},
    {"out_of_memory", "status = out_of_memory", "It does not fit into the device's memory: {reason}.",
     "Take a smaller batch, or a variant with less workspace."},
    {"throttled", "status = throttled", "The machine was disturbed, so there is no time: {reason}.",
     "Let it cool, or stop other programs, and measure again: " RUN "."},
    {"implausible", "status = implausible", "No launch can be so fast, so there is no time: {reason}.",
     "Find what it leaves out, or keeps from launch to launch. Where it does its work, a ceiling is too low "
     "(noisefloor "
     "ceilings --refresh) or the op's cost too high."},
    // The time is of something else.
    {"network", "op = network and time_cold_us > 0",
     "A whole network: its launches and the gaps between them limit it.",
     "See where the time goes with --breakdown and --trace of noisefloor forward, sample or train; then explain the "
     "longest."},
    {"disturbed", "load > 0.5", "Other programs had {load} threads on the host's cores during the samples.",
     "Stop them and measure again before you conclude anything."},
    {"above_roof", "pct_of_roof > 103", "It is faster than compulsory bytes from DRAM allow{why_above_roof}.",
     "Part of the data stays in cache. Sweep a larger problem of the op, or judge it by warm times."},
    // A ceiling is reached.
    {"dram", "memory_pct >= 85", "DRAM: the compulsory bytes alone move at {memory_pct} % of a copy's rate.",
     "Another kernel gains little. Move fewer bytes: fuse the op with a neighbour, or take a narrower dtype."},
    {"arithmetic", "compute_pct >= 85", "Arithmetic: it runs at {compute_pct} % of the pipe's measured rate.",
     "Another kernel gains little. Do fewer FLOPs (a shortcut of the formula), or use a faster dtype."},
    {"power", "throttle has sw_power_cap and clock_pct < 97",
     "The power cap: the SM clock was {clock_pct} % of the clock at which the ceiling was measured.",
     "Compare in turns, at the same clock: noisefloor pair. To raise the clock, move less data."},
    // The launch, not the work.
    {"launch", "launch_pct >= 50",
     "The launch: the run's shortest other launch takes {launch_us} us, {launch_pct} % of this row's cold time.",
     "Judge it by warm time. Fuse it with a neighbour, or let launches overlap (programmatic launch)."},
    {"small_grid", "waves < 0.5", "Too few blocks: {blocks} blocks fill {waves} of the device's places.",
     "Split the work further: smaller tiles, split-K, more blocks along the channels."},
    {"idle_sms", "tensor_pipe_pct >= 40 and tensor_share_pct < 50",
     "Too few SMs have work: on those the tensor pipe is busy {tensor_pipe_pct} % of the time, but the device reaches "
     "{compute_pct} %.",
     "Split the work further (smaller tiles, split-K), and look for padding that is multiplied and thrown away."},
    {"last_wave", "waves > 1 and wave_fill_pct < 80",
     "The last wave: {waves} waves of blocks fill the SMs to {wave_fill_pct} % on average.",
     "Use a tile that divides the work more evenly, a persistent grid, or split-K for the rest."},
    // A unit is busy below its roof.
    {"extra_traffic", "traffic >= 1.3 and dram_pct >= 50",
     "More traffic than needed: DRAM moves {traffic} times the compulsory bytes, {dram_pct} % of a copy's rate.",
     "Read once: keep what is used again in registers or shared memory, and order tiles so that it stays in L2."},
    {"dram_busy", "dram_pct >= 75", "DRAM: by the counters it works at {dram_pct} % of a copy's rate.",
     "Only fewer bytes help much: fuse the op with a neighbour, or take a narrower dtype."},
    {"l2", "l2_pct >= 75", "L2: it works at {l2_pct} % of its measured rate.",
     "Use each fetched byte more often: larger tiles, multicast within a cluster, shared memory."},
    {"tensor_pipe", "tensor_pipe_pct >= 75 and tensor_share_pct >= 50",
     "The tensor pipe: it is busy {tensor_pipe_pct} % of the time in which an SM has work.",
     "Look for work that is thrown away (padding, halos), and at the clock; else only fewer FLOPs help."},
    // No unit is busy.
    {"no_tensor_cores", "bound has tensor and tensor_pipe_pct < 2 and balance >= 1",
     "The tensor cores are idle ({tensor_pipe_pct} %), though the problem has {ai} FLOPs a byte.",
     "Take a tensor-core variant: noisefloor list variants --ops {op}."},
    {"spills", "spill_bytes > 0",
     "Each thread keeps {spill_bytes} bytes in local memory: spills, or arrays indexed at run time.",
     "Build with -Xptxas -v, and use fewer registers: smaller tiles for each thread, unrolled indices."},
    {"few_warps", "balance < 1 and occupancy_limit_pct < 40 and memory_pct < 70 and launch_pct < 50",
     "Few bytes in flight: {occupancy_limit_pct} % of an SM's warps fit, with {registers} registers a thread and "
     "{smem_bytes} B of shared memory a block.",
     "Let more warps fit, or let each have more loads in flight (wider loads, cp.async, TMA)."},
    {"idle_warps", "occupancy_used_pct < 50 and launch_pct < 50",
     "Idle places: {occupancy_used_pct} % of the warps that fit are active on average.",
     "Blocks are too few or of unequal length: split the work further, or hand it out at run time."},
    {"starved", "bound has tensor and balance >= 1 and tensor_pipe_pct < 50 and launch_pct < 50",
     "The tensor pipe waits: it is busy {tensor_pipe_pct} % of the time in which an SM has work.",
     "Load operands earlier: more stages, larger tiles, a warp that only loads. {ncu} shows the stalls."},
    {"latency", "dram_pct < 50 and l2_pct < 50 and balance < 1 and launch_pct < 50",
     "Latency: DRAM works at {dram_pct} % of its rate, L2 at {l2_pct} %, and the launch is less than half of the time.",
     "Put more loads in flight in each thread, and look for barriers and dependent loads: {ncu}."},
    {"cold_caches", "warm_pct < 60 and launch_pct < 50", "Cold caches: a warm launch takes {warm_pct} % of the time.",
     "In a network its input is already in L2: judge it by warm time, or prefetch weights during the launch."},
    {"many_kernels", "kernels > 1", "A launch is {kernels} kernels, and each waits for the one before.",
     "Fuse them, or let them overlap (programmatic launch, a cluster or cooperative grid)."},
    {"competitor", "competitor_ratio > 1.03",
     "Not the device: {competitor} is {competitor_ratio} times as fast on the same problem.",
     "noisefloor pair {op} {variant} {competitor} --problem {problem} --dtype {dtype}{pair_options}; then {ncu}."},
    {"short_samples", "stop = time_cap",
     "The median is not known to half a percent, because sampling reached its time limit.",
     "Measure again on a quieter machine before you trust small differences."},
    {"unexplained", "findings = 0 and time_cold_us > 0", "No rule holds: this row does not show what limits it.",
     "Measure what is not known (below), then look at the stalls: {ncu}."},
};

#undef RUN

}  // namespace

std::span<const ExplainRule> explain_rules() {
  return kRules;
}

}  // namespace noisefloor
