#include "bench/pipeline/breakdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "reports/run/csv.h"
#include "reports/run/statistics.h"

namespace noisefloor::pipeline {
namespace {

double microseconds(std::uint64_t from_ns, std::uint64_t to_ns) {
  return to_ns >= from_ns ? static_cast<double>(to_ns - from_ns) / 1e3 : -static_cast<double>(from_ns - to_ns) / 1e3;
}

void add(Share& share, const Breakdown& breakdown, std::size_t launch) {
  const LaunchTime& time = breakdown.together.launches[launch];
  const LaunchLabel& label = breakdown.labels[launch];
  ++share.launches;
  share.kernels += breakdown.kernels[launch].size();
  share.time_us += time.time_us;
  share.gap_us += std::max(0.0, time.gap_us);
  share.overlap_us += std::max(0.0, -time.gap_us);
  share.alone_us += breakdown.alone.launches[launch].kernel_us;
  if (!label.warm_us) return;
  share.warm_us += *label.warm_us;
  ++share.warm_launches;
  share.time_of_warm_us += time.time_us + std::max(0.0, time.gap_us);
}

// "-" where no launch's time is known; "12.3 (5 of 7)" where some are.
std::string warm_text(const Share& share) {
  if (share.warm_launches == 0) return "-";
  if (share.warm_launches == share.launches) return fmt::format("{:.1f}", share.warm_us);
  return fmt::format("{:.1f} ({} of {})", share.warm_us, share.warm_launches, share.launches);
}

constexpr const char* kLine = "  {:<36} {:>8} {:>8} {:>10} {:>7} {:>8} {:>8} {:>10} {:>18}";

std::string header_text(const char* first) {
  return fmt::format(fmt::runtime(kLine), first, "launches", "kernels", "time us", "%", "gap us", "overlap", "alone us",
                     "warm us") +
         "\n";
}

std::string share_text(const Share& share, const Breakdown& breakdown) {
  const double whole = breakdown.together.span_us;
  return fmt::format(
      fmt::runtime(kLine), share.name, share.launches, breakdown.host ? "-" : fmt::format("{}", share.kernels),
      fmt::format("{:.1f}", share.time_us), fmt::format("{:.1f}", whole > 0 ? 100 * share.time_us / whole : 0),
      fmt::format("{:.1f}", share.gap_us), breakdown.host ? "-" : fmt::format("{:.1f}", share.overlap_us),
      breakdown.host ? "-" : fmt::format("{:.1f}", share.alone_us), warm_text(share));
}

std::string totals_text(const Breakdown& b) {
  const Share all = total(b);
  std::string text =
      fmt::format("{}: medians of {} {}\n", b.title, b.runs, b.host ? "calls" : "replays of its CUDA graph");
  const auto line = [&](const char* name, double us, const std::string& what) {
    text += fmt::format("  {:<12} {:>12.1f} us  {}\n", name, us, what);
  };
  if (b.host) {
    line("end to end", b.end_to_end_us, fmt::format("wall clock, {} launches", all.launches));
  } else {
    line("end to end", b.end_to_end_us,
         fmt::format("without a trace; {:.1f} us from the first kernel's start to the last one's end with it",
                     b.together.span_us));
    line("kernels", all.time_us,
         fmt::format("{} kernels of {} launches; what overlaps is counted once", all.kernels, all.launches));
  }
  line("gaps", all.gap_us, b.host ? "between launches" : "in which nothing ran");
  if (!b.host) {
    line("overlap", all.overlap_us, "by which launches started before all before them had ended");
    line("alone", all.alone_us, "the kernels one after the other, without a graph and programmatic launch");
  }
  if (all.warm_launches > 0)
    line("warm times", all.warm_us,
         fmt::format("of {} of {} launches by themselves; here they take {:.1f} us with their gaps", all.warm_launches,
                     all.launches, all.time_of_warm_us));
  else
    text += fmt::format("  {:<12} {:>12}     no launch's time by itself is known\n", "warm times", "-");
  return text;
}

}  // namespace

LaunchKernels kernels_of_launches(std::span<const LaunchLabel> launches, std::span<const DeviceActivity> activities) {
  LaunchKernels kernels(launches.size());
  std::uint64_t last = 0;
  for (const DeviceActivity& activity : activities) {
    if (!activity.tag) throw failure("breakdown: {} ran, and no launch of the pipeline made it", activity.name);
    const std::uint64_t launch = *activity.tag;
    if (launch >= launches.size())
      throw failure("breakdown: {} is of launch {}, and there are {}", activity.name, launch, launches.size());
    kernels[launch].push_back(activity.name);
    if (launches[launch].beside) continue;
    if (launch < last)
      throw failure("breakdown: {} of launch {} started after kernels of launch {}", activity.name, launch, last);
    last = launch;
  }
  return kernels;
}

std::vector<std::vector<DeviceActivity>> activities_of_launches(std::span<const LaunchLabel> launches,
                                                                const LaunchKernels& kernels,
                                                                std::span<const DeviceActivity> activities) {
  // The launches whose kernels are next, once for each: of those in order, and of those beside them. A kernel that both
  // await is of the latter: in order there is one of that name behind the place that waits for them all.
  std::array<std::vector<std::size_t>, 2> expected;
  for (std::size_t launch = 0; launch < kernels.size(); ++launch)
    expected[launches[launch].beside].insert(expected[launches[launch].beside].end(), kernels[launch].size(), launch);
  if (expected[0].size() + expected[1].size() != activities.size())
    throw failure("breakdown: {} kernels ran in the recording, and {} launch by launch: they cannot be matched",
                  activities.size(), expected[0].size() + expected[1].size());
  std::vector<std::vector<DeviceActivity>> all(kernels.size());
  std::array<std::size_t, 2> next{};
  const auto awaited = [&](bool beside) -> const std::string* {
    if (next[beside] == expected[beside].size()) return nullptr;
    const std::size_t launch = expected[beside][next[beside]];
    return &kernels[launch][all[launch].size()];
  };
  for (const DeviceActivity& activity : activities) {
    const std::string *in_order = awaited(false), *aside = awaited(true);
    const bool beside = aside != nullptr && activity.name == *aside;
    if (!beside && (in_order == nullptr || activity.name != *in_order))
      throw failure(
          "breakdown: kernel {} of the recording is {}, and launch by launch it was {}: they cannot be "
          "matched",
          next[0] + next[1], activity.name, *(in_order == nullptr ? aside : in_order));
    all[expected[beside][next[beside]++]].push_back(activity);
  }
  return all;
}

RunTime time_of_run(std::span<const LaunchLabel> launches, const LaunchKernels& kernels,
                    std::span<const DeviceActivity> activities) {
  const auto matched = activities_of_launches(launches, kernels, activities);
  RunTime run;
  run.launches.resize(kernels.size());
  if (activities.empty()) return run;
  std::vector<std::pair<const DeviceActivity*, LaunchTime*>> beside;  // in the order in which they ran
  for (std::size_t launch = 0; launch < kernels.size(); ++launch)
    for (const DeviceActivity& activity : matched[launch]) {
      run.launches[launch].kernel_us += microseconds(activity.start_ns, activity.end_ns);
      if (launches[launch].beside) beside.emplace_back(&activity, &run.launches[launch]);
    }
  const std::uint64_t start = activities.front().start_ns;
  std::uint64_t ended = start;  // all so far
  for (std::size_t launch = 0; launch < kernels.size(); ++launch) {
    if (launches[launch].beside || matched[launch].empty()) continue;
    LaunchTime& time = run.launches[launch];
    const std::uint64_t begin = matched[launch].front().start_ns, from = std::max(ended, begin);
    time.gap_us = begin < ended ? microseconds(ended, begin) : 0;
    const auto leave_idle = [&](std::uint64_t until) {
      if (until <= ended) return;
      run.idle.push_back({launch, microseconds(start, ended), microseconds(ended, until)});
      time.gap_us += run.idle.back().us;
    };
    for (const auto& [activity, other] : beside) {
      const std::uint64_t end = std::min(activity->end_ns, begin);
      if (ended >= end || activity->start_ns >= begin) continue;
      leave_idle(activity->start_ns);
      ended = std::max(ended, activity->start_ns);
      other->time_us += microseconds(ended, end);
      ended = end;
    }
    leave_idle(begin);
    time.begin_us = microseconds(start, from);
    ended = from;
    for (const DeviceActivity& activity : matched[launch]) ended = std::max(ended, activity.end_ns);
    time.time_us = microseconds(from, ended);
  }
  run.span_us = microseconds(start, ended);
  return run;
}

RunTime median_of_runs(std::span<const RunTime> runs) {
  RunTime result;
  std::vector<double> numbers(runs.size());
  const auto median_by = [&](const auto& number_of) {
    std::transform(runs.begin(), runs.end(), numbers.begin(), number_of);
    return median(numbers);
  };
  result.span_us = median_by([](const RunTime& run) { return run.span_us; });
  for (std::size_t i = 0; i < runs.front().launches.size(); ++i)
    result.launches.push_back({median_by([&](const RunTime& run) { return run.launches.at(i).time_us; }),
                               median_by([&](const RunTime& run) { return run.launches.at(i).gap_us; }),
                               median_by([&](const RunTime& run) { return run.launches.at(i).kernel_us; })});
  return result;
}

std::size_t median_run(std::span<const RunTime> runs) {
  const double middle = median_of_runs(runs).span_us;
  return static_cast<std::size_t>(
      std::ranges::min_element(runs, {}, [&](const RunTime& run) { return std::abs(run.span_us - middle); }) -
      runs.begin());
}

std::vector<Share> shares(const Breakdown& breakdown, std::string LaunchLabel::*field) {
  std::vector<Share> all;
  std::map<std::string, std::size_t> place;
  for (std::size_t i = 0; i < breakdown.labels.size(); ++i) {
    const LaunchLabel& label = breakdown.labels[i];
    const auto [at, is_new] = place.try_emplace(label.*field, all.size());
    if (is_new) {
      Share& share = all.emplace_back();
      share.name = at->first;
      share.variant = label.variant;
      share.problem = label.problem;
    }
    add(all[at->second], breakdown, i);
  }
  std::stable_sort(all.begin(), all.end(), [](const Share& a, const Share& b) { return a.time_us > b.time_us; });
  return all;
}

Share total(const Breakdown& breakdown) {
  Share all;
  for (std::size_t i = 0; i < breakdown.labels.size(); ++i) add(all, breakdown, i);
  return all;
}

std::string breakdown_text(const Breakdown& breakdown, std::size_t top) {
  std::string text = totals_text(breakdown) + "\n" + header_text("op");
  for (const Share& share : shares(breakdown, &LaunchLabel::op)) text += share_text(share, breakdown) + "\n";
  const std::vector<Share> nodes = shares(breakdown, &LaunchLabel::node);
  const std::size_t shown = std::min(top, nodes.size());
  text += "\n" + header_text(fmt::format("node ({} of {})", shown, nodes.size()).c_str());
  for (std::size_t i = 0; i < shown; ++i)
    text += fmt::format("{}  {} {}\n", share_text(nodes[i], breakdown), nodes[i].variant, nodes[i].problem);
  return text;
}

std::string breakdown_csv(const Breakdown& breakdown) {
  std::string text = "op,node,problem,variant,kernels,time_us,gap_before_us\n";
  for (std::size_t i = 0; i < breakdown.labels.size(); ++i) {
    const LaunchLabel& label = breakdown.labels[i];
    const LaunchTime& time = breakdown.together.launches[i];
    text += fmt::format("{},{},{},{},{},{:.3f},{:.3f}\n", quote_csv(label.op), quote_csv(label.node),
                        quote_csv(label.problem), quote_csv(label.variant), breakdown.kernels[i].size(), time.time_us,
                        time.gap_us);
  }
  return text;
}

}  // namespace noisefloor::pipeline
