// What follows from an op's definition, for random problems made of nothing but its fields: text, tensors and pointers.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <set>
#include <utility>

#include "kernels/adamw/adamw.h"
#include "kernels/attention/attention.h"
#include "kernels/attention_backward/attention_backward.h"
#include "kernels/catalogue.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/conv3d_temporal/conv3d_temporal.h"
#include "kernels/conv_transpose2d/conv_transpose2d.h"
#include "kernels/edm_precondition/edm_precondition.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/gemm/gemm.h"
#include "kernels/grad_norm/grad_norm.h"
#include "kernels/groupnorm/groupnorm.h"
#include "kernels/groupnorm_backward/groupnorm_backward.h"
#include "kernels/layernorm/layernorm.h"
#include "kernels/layernorm_backward/layernorm_backward.h"
#include "kernels/mse_loss/mse_loss.h"
#include "kernels/q_sample/q_sample.h"
#include "kernels/resample/resample.h"
#include "kernels/sampler_step/sampler_step.h"
#include "kernels/temporal_attention/temporal_attention.h"
#include "kernels/timestep_embedding/timestep_embedding.h"
#include "kernels/training_batch/training_batch.h"
#include "tests/support/host_data.h"
#include "tests/support/random_problems.h"

namespace noisefloor {
namespace {

constexpr std::size_t kFewestProblems = 40;

bool same(const std::vector<KeyValue>& a, const std::vector<KeyValue>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const KeyValue& x, const KeyValue& y) { return x.key == y.key && x.value == y.value; });
}

template <class P, class T>
void expect_pointers_follow(const OpDefinition<P, T>& definition, const P& problem, const std::string& text) {
  SCOPED_TRACE(std::string(definition.name) + " " + text);
  const auto specs = definition.tensors(problem, DType::bf16);
  std::set<std::string> names;
  for (const TensorSpec& spec : specs) EXPECT_TRUE(names.insert(spec.name).second) << spec.name << " twice";

  std::vector<void*> pointers;
  for (std::size_t i = 1; i <= specs.size(); ++i) pointers.push_back(reinterpret_cast<void*>(16 * i));
  const T bound = definition.bind(problem, pointers);
  auto members = std::bit_cast<std::array<void*, sizeof(T) / sizeof(void*)>>(bound);  // pointers and nothing else
  std::vector<void*> filled;
  std::copy_if(members.begin(), members.end(), std::back_inserter(filled), [](void* p) { return p != nullptr; });
  filled.erase(std::unique(filled.begin(), filled.end()), filled.end());  // k and v of qkv are q, dk and dv of dqkv dq
  EXPECT_EQ(filled, pointers) << "every tensor fills one member, and members lie in the order of the tensors";

  EXPECT_TRUE(definition.check_pointers(problem, bound).ok());
  for (const std::uintptr_t wrong : {0, 8})
    for (void*& member : members) {
      if (member == nullptr) continue;
      void* const right = std::exchange(member, reinterpret_cast<void*>(wrong));
      EXPECT_EQ(definition.check_pointers(problem, std::bit_cast<T>(members)).code, StatusCode::invalid_argument);
      member = right;
    }
}

// Of each op of the catalogue, whatever its types are.
TEST(Definitions, TextFollows) {
  for (const Op& op : catalogue()) {
    const auto problems = random_problems(op);
    EXPECT_GE(problems.size(), kFewestProblems) << op.name;
    for (const AnyProblem& problem : problems) {
      const std::string text = op.print(problem);
      const AnyProblem again = op.parse(text);
      ASSERT_EQ(op.print(again), text) << op.name;
      ASSERT_TRUE(same(op.values(again), op.values(problem))) << op.name << " " << text;
      ASSERT_EQ(op.print(op.parse_pairs(op.values(problem))), text) << op.name << " with every default written";
      ASSERT_EQ(op.values(problem).size(), op.fields.size());
    }
  }
}

template <class P, class T>
void expect_pointers_follow(const OpDefinition<P, T>& definition) {
  const Op& op = *find_op(definition.name);
  for (const AnyProblem& problem : random_problems(op)) {
    expect_pointers_follow(definition, problem.as<P>(), op.print(problem));
    if (testing::Test::HasFailure()) return;
  }
}

// What binds pointers is one template of the tensors that an op visits: each kind of op that there is stands for it.
TEST(Definitions, PointersFollow) {
  const auto follow = [](const auto&... definitions) { (expect_pointers_follow(definitions), ...); };
  follow(attention::definition, temporal_attention::definition, gemm::definition, conv2d::definition,
         conv_transpose2d::definition, conv3d_temporal::definition, groupnorm::definition, sampler_step::definition,
         layernorm::definition, elementwise::definition, resample::definition, timestep_embedding::definition,
         q_sample::definition, edm_precondition::definition, groupnorm_backward::definition,
         layernorm_backward::definition, training_batch::definition, mse_loss::definition, grad_norm::definition,
         adamw::definition, attention_backward::definition);
}

// Small, with so many outputs, or a single sum, that they have a size to which the tolerance is relative, and none that
// fp16 cannot hold.
bool to_be_run(const Op& op, const AnyProblem& problem, DType dtype) {
  constexpr std::int64_t kFewestOutputs = 64;
  double bytes = 0;
  for (const TensorSpec& spec : op.tensors(problem, dtype)) {
    bytes += static_cast<double>(spec.bytes());
    const bool sum = spec.shape == std::vector<std::int64_t>{1};
    if (spec.role != Role::in && spec.elements() < kFewestOutputs && !sum) return false;
  }
  for (const KeyValue& field : op.values(problem))
    if (field.key.ends_with("scale") && std::abs(std::stod(field.value)) > 100) return false;
  return bytes <= 1 << 18 && op.cost(problem, dtype).flops <= 2e6;
}

// Of any elements the oracle says what it says of all.
TEST(Definitions, TheHostVariantIsTheOraclesAndAPartOfTheOraclesIsThatOfTheWhole) {
  constexpr unsigned kMost = 40;
  for (const Op& op : catalogue()) {
    unsigned ran = 0;
    for (const AnyProblem& problem : random_problems(op)) {
      const DType dtype = op.dtypes[ran % op.dtypes.size()];
      if (!to_be_run(op, problem, dtype)) continue;
      SCOPED_TRACE(op.name + " " + op.print(problem) + " " + to_string(dtype));
      HostData data(op, problem, dtype, ran);
      ASSERT_TRUE(data.run_host().ok());
      EXPECT_EQ(data.difference(), "");
      for (std::size_t output = 0; output < data.specs.size(); ++output) {
        if (data.specs[output].role == Role::in) continue;
        const std::vector<double> whole = data.reference(output);
        std::vector<std::int64_t> some{0, 1, 4, 5, 19, 20, 33, 41, data.specs[output].elements() - 1};
        std::erase_if(some, [&](std::int64_t i) { return i > some.back(); });
        const std::vector<double> part = data.reference(output, some);
        for (std::size_t i = 0; i < some.size(); ++i) EXPECT_EQ(part[i], whole[static_cast<std::size_t>(some[i])]);
      }
      if (++ran == kMost) break;
    }
    EXPECT_GE(ran, 20u) << op.name;
  }
}

// Half a line each, as lists and docstrings put a range and a default behind it.
TEST(Fields, EachOfEveryOpSaysWhatItIs) {
  const auto expect_half_a_line = [](const std::string& text) {
    EXPECT_TRUE(!text.empty() && text.size() <= 120) << text;
    EXPECT_FALSE(text.ends_with('.') || text.find('\n') != std::string::npos) << text;
  };
  for (const Op& op : catalogue()) {
    SCOPED_TRACE(op.name);
    expect_half_a_line(op.computes);
    for (const FieldInfo& field : op.fields) {
      SCOPED_TRACE(field.name);
      expect_half_a_line(field.meaning);
      EXPECT_NE(field.meaning, field.name);
      EXPECT_TRUE(field.chosen()                           ? field.choices.size() > 1
                  : field.type == FieldInfo::Type::integer ? field.low < field.high
                                                           : field.real_low < field.real_high);
    }
  }
}

}  // namespace
}  // namespace noisefloor
