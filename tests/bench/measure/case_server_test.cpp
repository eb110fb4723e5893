// A program that times cases where another one asks: its answers, also to what makes no sense.
#include "bench/measure/case_server.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/sweep/suite.h"

namespace noisefloor {
namespace {

using Json = nlohmann::json;

class CaseServerTest : public testing::Test {
 protected:
  Json ask(const Json& question) { return server_.answer(question); }
  Json ready(const std::string& variant = "host", const std::string& problem = "m=8,n=8,k=8",
             const std::string& op = "gemm", const std::string& dtype = "fp32") {
    return ask(
        {{"ask", "ready"}, {"variant", variant}, {"dtype", dtype}, {"problem", {{"op", op}, {"problem", problem}}}});
  }
  void expect_refused(const Json& answer, const std::string& words) {
    EXPECT_EQ(answer.value("failed", ""), "unsupported_problem") << answer;
    EXPECT_NE(answer.value("reason", "").find(words), std::string::npos) << answer;
  }

  std::unique_ptr<Platform> platform_ = make_host_platform();
  CaseServer server_{*platform_, suite()};
};

TEST_F(CaseServerTest, MakesReadyTimesAndJudges) {
  const Json made = ready();
  ASSERT_FALSE(made.contains("failed")) << made;
  EXPECT_FALSE(made.contains("wrong")) << made;
  EXPECT_LE(made.at("errors").at(0).at("max").get<double>(), 1e-4);
  EXPECT_EQ(ask({{"ask", "poison"}}), Json::object());
  const auto cold = ask({{"ask", "cold"}, {"samples", 3}}).at("us").get<std::vector<double>>();
  EXPECT_EQ(cold.size(), 3u);
  EXPECT_GT(cold.front(), 0);
  EXPECT_FALSE(ask({{"ask", "judge"}}).contains("wrong"));
  EXPECT_EQ(ask({{"ask", "warm"}, {"samples", 2}, {"repeats", 5}}).at("us").size(), 2u);
  EXPECT_FALSE(ready("host", "m=16,n=8,k=8").contains("failed")) << "another case without a release between";
  EXPECT_EQ(ask({{"ask", "touch"}}), Json::object()) << "needs no case, and takes none away";
  EXPECT_TRUE(ask({{"ask", "judge"}}).contains("errors"));
  EXPECT_EQ(ask({{"ask", "release"}}), Json::object());
}

TEST_F(CaseServerTest, WhatNobodyLaunchedIsWrong) {
  ready();
  ask({{"ask", "poison"}});
  EXPECT_TRUE(ask({{"ask", "judge"}}).contains("wrong"));
}

TEST_F(CaseServerTest, SaysWhatItHasNot) {
  expect_refused(ready("tild"), "no variant 'tild' of gemm");
  expect_refused(ready("host", "m=8,n=8,k=8,x=1"), "does not know the problem");
  expect_refused(ready("host", "m=8", "gem"), "no op 'gem'");
  expect_refused(ready("host", "m=8,n=8,k=8", "gemm", "fp4"), "no dtype 'fp4'");
  expect_refused(ask({{"ask", "cold"}, {"samples", 3}}), "without a case");
  ready();
  expect_refused(ask({{"ask", "dance"}}), "unknown question 'dance'");
  for (const Json& samples : {Json(0), Json(-1), Json(1.5), Json("many"), Json(2'000'000'000)})
    expect_refused(ask({{"ask", "cold"}, {"samples", samples}}), "not a whole number from 1 to 10000");
  expect_refused(ask({{"ask", "warm"}, {"samples", 1}, {"repeats", -5}}), "not a whole number from 1 to 1000");
}

TEST_F(CaseServerTest, SurvivesQuestionsThatMakeNoSense) {
  std::istringstream questions(R"(["cold"]
not json
{"ask": 7, "number": 3}
{"ask": "release", "number": 4}
)");
  std::vector<std::string> lines;
  serve(server_, {{"commit", "abc"}}, questions, [&](const std::string& line) { lines.push_back(line); });
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(Json::parse(lines[0]), Json({{"facts", {{"commit", "abc"}}}}));
  for (const std::size_t i : {1u, 2u, 3u}) EXPECT_TRUE(Json::parse(lines[i]).contains("failed")) << lines[i];
  EXPECT_EQ(Json::parse(lines[3]).at("number"), 3);
  EXPECT_EQ(Json::parse(lines[4]), Json({{"number", 4}}));
}

}  // namespace
}  // namespace noisefloor
