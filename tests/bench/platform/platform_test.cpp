// Which machines a program says that it is not for, what a GPU's state is where there is none, and what a status that a
// launch returned becomes.
#include "bench/platform/platform.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <string>

#include "bench/platform/build_info.h"
#include "bench/platform/console.h"
#include "bench/platform/cpu_check.h"
#include "bench/platform/nvml.h"
#include "tests/support/refusal.h"

namespace noisefloor {
namespace {

TEST(FailedStatus, CarriesTheLibrarysOwnWords) {
  EXPECT_NO_THROW(throw_if_failed(success()));
  const auto words_of = [](const Status& status) {
    return refusal_of<DeviceError>([&] { return throw_if_failed(status), 0; });
  };
  EXPECT_EQ(words_of(failure(StatusCode::cuda_error, "cuDNN execute: CUDNN_STATUS_BAD_PARAM")),
            "cuDNN execute: CUDNN_STATUS_BAD_PARAM");
  constexpr int kIllegalAddress = 700;
  const std::string of_cuda = words_of({StatusCode::cuda_error, "cudaLaunchKernel", kIllegalAddress});
  EXPECT_TRUE(of_cuda.starts_with("cudaLaunchKernel: ") && of_cuda.size() > std::string("cudaLaunchKernel: ").size());
}

TEST(ClockEvents, AreNamed) {
  EXPECT_EQ(clock_events_text(0), "none");
  EXPECT_EQ(clock_events_text(kClockSwPowerCap | kClockHwThermal), "sw_power_cap|hw_thermal");
  EXPECT_EQ(clock_events_text(kClockGpuIdle | 0x8000), "gpu_idle|0x8000");
}

TEST(GpuMonitor, WithoutAGpuSaysWhyAndReportsNothing) {
  const GpuMonitor monitor("ffff:ff:1f.0");
  EXPECT_FALSE(monitor.available());
  EXPECT_FALSE(monitor.reason().empty());
  const GpuState state = monitor.read();
  EXPECT_FALSE(state.sm_clock_mhz || state.power_w || state.clock_event_reasons || state.compute_processes);
  const GpuDescription gpu = monitor.describe();
  EXPECT_EQ(gpu.uuid, "");
  EXPECT_FALSE(gpu.power_limit_w || gpu.power_limit_default_w || gpu.sm_clock_max_mhz || gpu.ecc || gpu.mig);
}

TEST(ServedMachines, ACpuBelowTheLevelIsNamed) {
  char sentence[512] = "";
  for (int needs = 0; needs <= 4; ++needs)
    for (int has = 0; has <= 4; ++has)
      EXPECT_EQ(cpu_is_too_old(needs, has, sentence, sizeof sentence), has < needs) << needs << " on " << has;
  ASSERT_TRUE(cpu_is_too_old(4, 3, sentence, sizeof sentence));
  const std::string text = sentence;
  for (const char* word : {"x86-64-v4", "x86-64-v3", "NOISEFLOOR_HOST_ARCH", "\n"})
    EXPECT_NE(text.find(word), std::string::npos) << text;
  char small[8];
  EXPECT_TRUE(cpu_is_too_old(4, 3, small, sizeof small));
  EXPECT_FALSE(cpu_is_too_old(cpu_level(), cpu_level(), sentence, sizeof sentence));
}

TEST(ServedMachines, MachineCodeServesItsMajorVersionFromItsMinorOn) {
  const struct {
    const char* architectures;
    int gpu;
    bool served;
  } cases[] = {
      {"80", 80, true},       {"80", 86, true},      {"80", 89, true},      {"80", 75, false},
      {"80", 90, false},      {"86", 80, false},     {"90", 90, true},      {"90a", 90, true},
      {"90a", 80, false},     {"90a", 100, false},   {"100", 103, true},    {"100a", 103, false},
      {"100f", 103, true},    {"120", 121, true},    {"120", 103, false},   {"75,90a", 75, true},
      {"75,90a", 90, true},   {"75,90a", 86, false}, {"75,90a", 61, false}, {"75,80,90a", 86, true},
      {"no CUDA", 90, false}, {"", 90, false},
  };
  for (const auto& one : cases) {
    EXPECT_EQ(serves_gpu(one.architectures, one.gpu), one.served) << one.architectures << " on " << one.gpu;
    EXPECT_EQ(why_unserved("GPU", one.gpu, one.architectures).empty(), one.served);
  }
  const std::string why = why_unserved("NVIDIA H100", 90, "80");
  for (const char* word : {"sm_80", "NVIDIA H100", "sm_90", "=90a", "--device host"})
    EXPECT_NE(why.find(word), std::string::npos) << why;
}

// ---- what a terminal gets of texts; that printing never throws tests/cli/test_streams.py shows

std::string plain(std::string_view text) {
  return PlainText().of(text);
}

TEST(PlainText, KeepsTextAndEscapesControls) {
  EXPECT_EQ(plain("time 12.5 µs\t(±1 %)\n"), "time 12.5 µs\t(±1 %)\n");
  EXPECT_EQ(plain("日本 \xF0\x9F\x99\x82"), "日本 \xF0\x9F\x99\x82");
  EXPECT_EQ(plain("\x1b[31mred\x1b]0;title\a"), "\\x1b[31mred\\x1b]0;title\\x07");
  EXPECT_EQ(plain("a\rb\bc\x7f"), "a\\x0db\\x08c\\x7f");
  EXPECT_EQ(plain("\xC2\x9B"
                  "31m"),
            "\\xc2\\x9b31m")
      << "U+009B begins a sequence, as ESC [ does";
  EXPECT_EQ(plain("\x9B"
                  "31m"),
            "\\x9b31m");
  EXPECT_EQ(plain("\xE0\x80\xAF \xED\xA0\x80 \xF4\x90\x80\x80 \xC0\xAF"),
            "\\xe0\\x80\\xaf \\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80 \\xc0\\xaf")
      << "overlong, surrogates, beyond the last";
  EXPECT_EQ(plain("\xE6\x97\n"), "\\xe6\\x97\n") << "cut off";
}

RC_GTEST_PROP(PlainText, DoesNotDependOnWhereItIsCut, (const std::string& text, std::size_t cut)) {
  PlainText pieces;
  const std::size_t at = text.empty() ? 0 : cut % text.size();
  std::string out = pieces.of(std::string_view(text).substr(0, at));
  out += pieces.of(std::string_view(text).substr(at));
  RC_ASSERT(out == plain(text));
  for (const char c : out) RC_ASSERT(c == '\n' || c == '\t' || static_cast<unsigned char>(c) >= 0x20);
}

}  // namespace
}  // namespace noisefloor
