#include <gtest/gtest.h>

#include "bench/commands/sample_arguments.h"

namespace noisefloor {
namespace {

TEST(GuidanceNote, IsGivenForCheckpointsThatNeverSawAMissingLabel) {
  for (const char* network : {"adm64", "edm-cifar"})
    EXPECT_NE(guidance_note(network).find("never trained"), std::string::npos) << network;
  EXPECT_EQ(guidance_note("digits"), "");
}

}  // namespace
}  // namespace noisefloor
