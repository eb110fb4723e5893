// What env.json says of a machine.
#include "bench/sweep/environment.h"

#include <gtest/gtest.h>

namespace noisefloor {
namespace {

TEST(Environment, OfAGpuHasWhatItReportsAndNothingElse) {
  EXPECT_EQ(gpu_facts({}).dump(), "{}");
  GpuDescription gpu;
  gpu.power_limit_w = 650;
  gpu.power_limit_default_w = 700;
  gpu.memory_clock_max_mhz = 3201;
  gpu.ecc = true;
  gpu.mig = false;
  gpu.pcie_generation = 5;
  gpu.pcie_lanes = 16;
  EXPECT_EQ(gpu_facts(gpu).dump(),
            R"({"power_limit_w":650.0,"power_limit_default_w":700.0,"memory_clock_max_mhz":3201.0,"ecc":"on",)"
            R"("mig":"off","pcie":"generation 5, 16 lanes"})");
}

TEST(Environment, OfAHostNamesItsProcessorsAndNoGpu) {
  const auto host = make_host_platform();
  const auto facts = environment_facts(host->description(), GpuMonitor::unavailable("host"));
  EXPECT_EQ(facts.at("gpu_uuid"), "");
  EXPECT_GE(facts.at("cpu_cores").get<int>(), 1);
  EXPECT_TRUE(facts.at("device").get<std::string>().starts_with(facts.at("cpu").get<std::string>()));
  EXPECT_GE(facts.at("load_average").get<double>(), 0);
  for (const char* name : {"power_limit_w", "ecc", "cublaslt", "cudnn", "cupti"}) EXPECT_FALSE(facts.contains(name));
}

}  // namespace
}  // namespace noisefloor
