// A call on a time axis: what Perfetto reads, from records that are made up.
#include "bench/pipeline/breakdown.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

namespace noisefloor::pipeline {
namespace {

using TimelineEvents = std::vector<nlohmann::json>;

// Events of a kind, as the Trace Event Format has them; each must have what its kind asks for.
TimelineEvents events_of(const nlohmann::json& file, const std::string& phase) {
  TimelineEvents found;
  for (const auto& event : file.at("traceEvents")) {
    EXPECT_TRUE(event.at("name").is_string() && event.at("pid").is_number_integer());
    const std::string kind = event.at("ph");
    if (kind == "X") {
      EXPECT_GE(event.at("ts").get<double>(), 0);
      EXPECT_GE(event.at("dur").get<double>(), 0);
      EXPECT_TRUE(event.at("tid").is_number_integer() && event.at("cat").is_string());
    } else if (kind == "C") {
      for (const auto& value : event.at("args")) EXPECT_TRUE(value.is_number());
    } else {
      EXPECT_EQ(kind, "M");
    }
    if (kind == phase) found.push_back(event);
  }
  return found;
}

TimelineEvents on_track(const nlohmann::json& file, const std::string& name) {
  TimelineEvents found;
  for (const auto& track : events_of(file, "M"))
    if (track["name"] == "thread_name" && track["args"]["name"] == name)
      for (const auto& event : events_of(file, "X"))
        if (event["tid"] == track["tid"]) found.push_back(event);
  return found;
}

DeviceActivity ran(const char* name, double start_us, double end_us) {
  constexpr std::uint64_t kBase = 1'763'000'000'000'000'000;  // a clock of nanoseconds since 1970
  return {
      name, kBase + static_cast<std::uint64_t>(start_us * 1e3), kBase + static_cast<std::uint64_t>(end_us * 1e3), {}};
}

// The second node overlaps with the first, the third runs nothing, a gap is before the sampler's.
Breakdown made_up() {
  Breakdown b;
  b.title = "digits, one call";
  b.labels = {{{{"conv2d", "n=4", "bf16"}, "ptx"}, "in", 8.0, LaunchLabel::Memory{1000, 64}},
              {{{"groupnorm", "n=4", "bf16"}, "tiled"}, "norm", std::nullopt, LaunchLabel::Memory{3000, 0}},
              {{{"elementwise", "n=4", "bf16"}, "tiled"}, "nothing", std::nullopt},
              {{{"sampler_step", "n=4", "fp32"}, "tiled"}, "sampler.first", std::nullopt}};
  b.kernels = {{"void noisefloor::conv(int)"}, {"k1", "k2"}, {}, {"memcpy"}};
  b.replay = {ran("void noisefloor::conv(int)", 0, 10), ran("k1", 8, 20), ran("k2", 20, 25), ran("memcpy", 28, 30.5)};
  return b;
}

TEST(Timeline, HasNodesGapsKernelsAndMemory) {
  const auto file = nlohmann::json::parse(timeline_json(made_up(), "a GPU"));
  const auto nodes = on_track(file, "nodes"), gaps = on_track(file, "gaps");
  ASSERT_EQ(nodes.size(), 3u) << "what runs nothing is not there";
  const std::tuple<const char*, double, double> expected[] = {
      {"in", 0, 10}, {"norm", 10, 15}, {"sampler.first", 28, 2.5}};
  for (std::size_t i = 0; i < 3; ++i) {
    const auto& [name, ts, dur] = expected[i];
    EXPECT_EQ(nodes[i]["name"], name);
    EXPECT_DOUBLE_EQ(nodes[i]["ts"], ts) << name;
    EXPECT_DOUBLE_EQ(nodes[i]["dur"], dur) << name;
  }
  EXPECT_EQ(nodes[0]["args"], nlohmann::json::parse(R"({"op": "conv2d", "variant": "ptx", "problem": "n=4",
                                                        "dtype": "bf16", "kernels": 1, "warm_us": 8.0})"));
  ASSERT_EQ(gaps.size(), 1u);
  EXPECT_DOUBLE_EQ(gaps[0]["ts"], 25);
  EXPECT_DOUBLE_EQ(gaps[0]["dur"], 3);
  EXPECT_EQ(gaps[0]["args"]["before"], "sampler.first");

  const auto kernels = on_track(file, "kernels"), beside = on_track(file, "kernels beside them");
  ASSERT_EQ(kernels.size(), 3u);
  EXPECT_EQ(kernels[0]["name"], "conv");
  EXPECT_EQ(kernels[1]["name"], "k2");
  ASSERT_EQ(beside.size(), 1u) << "k1 begins before conv has ended";
  EXPECT_DOUBLE_EQ(beside[0]["ts"], 8);
  EXPECT_EQ(beside[0]["args"]["node"], "norm");

  const auto counters = events_of(file, "C");
  ASSERT_EQ(counters.size(), 2u) << "the sampler's memory is not the network's";
  EXPECT_EQ(counters[1]["args"], nlohmann::json::parse(R"({"activations": 3000, "workspace": 0})"));
  EXPECT_DOUBLE_EQ(counters[1]["ts"], 10);
  EXPECT_EQ(file["otherData"]["device"], "a GPU");
  EXPECT_DOUBLE_EQ(file["otherData"]["span_us"], 30.5);
}

TEST(Timeline, RefusesRecordsOfOtherLaunches) {
  Breakdown b = made_up();
  b.replay.pop_back();
  EXPECT_THROW((void)timeline_json(b, ""), std::runtime_error);
  b = made_up();
  b.replay[1].name = "other";
  EXPECT_THROW((void)timeline_json(b, ""), std::runtime_error);
  b = {};
  EXPECT_TRUE(events_of(nlohmann::json::parse(timeline_json(b, "")), "X").empty());
}

TEST(Timeline, NamesMayHoldAnything) {
  Breakdown b = made_up();
  b.labels[0].node = "in \"\xff\" \n</script>";
  const auto file = nlohmann::json::parse(timeline_json(b, "\xfe"));
  EXPECT_EQ(on_track(file, "nodes").size(), 3u);
}

TEST(Timeline, TakesTheRunNearestToTheMedian) {
  const RunTime runs[] = {{{}, 10}, {{}, 30}, {{}, 21}, {{}, 19}, {{}, 22}};
  EXPECT_EQ(median_run(runs), 2u);
  const RunTime two[] = {{{}, 10}, {{}, 30}};
  EXPECT_EQ(median_run(two), 0u) << "of equals the first";
}

RC_GTEST_PROP(Timeline, SlicesOfATrackDoNotOverlapAndAddUpToTheSpan, ()) {
  Breakdown b;
  double start = 0;
  for (auto launches = *rc::gen::inRange(1, 30); launches > 0; --launches) {
    b.labels.push_back({{{"op", "p", "bf16"}, "v"}, "node" + std::to_string(launches), std::nullopt});
    auto& names = b.kernels.emplace_back();
    for (auto left = *rc::gen::inRange(0, 4); left > 0; --left) {
      names.push_back("k");
      start += *rc::gen::inRange(0, 20);
      b.replay.push_back(ran("k", start, start + *rc::gen::inRange(0, 25)));
    }
  }
  const auto file = nlohmann::json::parse(timeline_json(b, "GPU"));
  std::map<int, double> ended;
  double sum = 0;
  std::size_t kernels = 0;
  for (const auto& event : events_of(file, "X")) {
    const double ts = event["ts"], dur = event["dur"];
    const int track = event["tid"];
    RC_ASSERT(ts >= ended[track] - 1e-6);
    ended[track] = ts + dur;
    if (track <= 2) sum += dur;
    kernels += track > 2 ? 1 : 0;
  }
  RC_ASSERT(kernels == b.replay.size());
  RC_ASSERT(std::abs(sum - file["otherData"]["span_us"].get<double>()) < 1e-6);
}

}  // namespace
}  // namespace noisefloor::pipeline
