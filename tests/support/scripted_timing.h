// A machine that is a script: nothing is launched, time is a number, and clocks do what the script says.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "bench/measure/timing_loop.h"
#include "bench/platform/platform.h"
#include "reports/run/sweep_csv.h"

namespace noisefloor {

// Launches take what they take on the scripted machine, and its time goes on by that.
class ScriptedTiming final : public TimingSource {
 public:
  std::function<double(int)> launch_us = [](int) { return 1000.0; };  // of cold launch i
  // Of the time; null: such a machine has none.
  std::function<double(double)> mhz;
  std::function<std::uint64_t(double)> reasons;
  int lost_in_cold = -1, lost_in_warm = -1;  // the call, from 0, in which the device is lost

  double time = 0;
  std::vector<int> cold_calls;
  std::vector<std::pair<int, int>> warm_calls;  // samples, repeats
  int serial_calls = 0;
  double serial_us = 0;                   // that a launch with ordinary edges takes longer
  std::function<double(double)> wait_us;  // of a sample that ends at this time; null: nobody says
  std::function<double(double)> others;   // threads of others, at this time
  // Of an edge, at this time; null: a machine without. Its launches take longer by what it is above 1, `kernels` times.
  std::function<double(double)> edge_latency_us;
  double kernels = 1;
  int edge_calls = 0;
  std::size_t slots_ = 1;
  std::vector<std::size_t> moves;
  std::function<void()> settle;  // what makes edges short; null: nothing does
  int settle_calls = 0;

  double now() override { return time; }

  std::vector<double> cold(int samples) override {
    if (static_cast<int>(cold_calls.size()) == lost_in_cold) throw DeviceError("the device fell off the bus", true);
    cold_calls.push_back(samples);
    return launch(samples, 1);
  }
  std::vector<double> warm(int samples, int repeats, Edges edges) override {
    if (static_cast<int>(warm_calls.size()) == lost_in_warm) throw DeviceError("the device fell off the bus", true);
    warm_calls.emplace_back(samples, repeats);
    std::vector<double> times = launch(samples, repeats);
    if (edges == Edges::ordinary)
      for (double& one : times) ++serial_calls, one += serial_us;
    if (edge_latency_us)
      for (double& one : times) one += kernels * (edge_latency_us(time) - 1);
    return times;
  }
  std::optional<double> sm_clock_mhz() override {
    if (!mhz) return std::nullopt;
    return mhz(time);
  }
  std::optional<std::uint64_t> clock_event_reasons() override {
    if (!reasons) return std::nullopt;
    return reasons(time);
  }
  std::span<const double> waits_us() override { return waits_; }
  std::vector<double> edges_us(int samples) override {
    if (!edge_latency_us) return {};
    ++edge_calls;
    time += samples * 64e-6;
    return std::vector<double>(static_cast<std::size_t>(samples), edge_latency_us(time));
  }
  std::size_t slots() const override { return slots_; }
  void move_to(std::size_t slot) override { moves.push_back(slot); }
  std::vector<double> settled_edges_us(int samples) override {
    ++settle_calls;
    if (settle) settle();
    return edges_us(samples);
  }
  std::optional<double> load() override {
    if (!others) return std::nullopt;
    return others(time);
  }

 private:
  std::vector<double> launch(int samples, int repeats) {
    constexpr double kHour = 3600;
    if (time > kHour) throw std::logic_error("the loop does not end");
    std::vector<double> times;
    waits_.clear();
    for (int i = 0; i < samples; ++i) {
      times.push_back(launch_us(launches_++));
      time += times.back() * repeats * 1e-6;
      if (wait_us) waits_.push_back(wait_us(time));
    }
    return times;
  }
  int launches_ = 0;
  std::vector<double> waits_;
};

// So far apart that their median is never known.
inline double scattered(int launch) {
  return launch % 2 == 0 ? 1000 : 3000;
}

inline Timing measured(ScriptedTiming& script, const TimingOptions& options = {}) {
  TimingLoop loop(script, options);
  loop.cold();
  loop.warm();
  return loop.timing();
}

inline SweepRow row_of(const Timing& timing) {
  SweepRow row;
  row.flops = 1e9;
  row.bytes = 1e6;
  write_times(timing, row);
  return row;
}

}  // namespace noisefloor
