// A problem's inputs, and nothing else, lead back to the problem: for every op, random problems with random sets of
// optional inputs. What shapes cannot say is asked for by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "bench/sweep/problem_files.h"
#include "bench/tensors/problem_inference.h"
#include "kernels/catalogue.h"
#include "tests/support/random_problems.h"

namespace noisefloor {
namespace {

using FieldValues = std::map<std::string, std::string>;

std::vector<TensorSpec> inputs_of(const Op& op, const AnyProblem& problem) {
  auto specs = op.tensors(problem, op.dtypes.front());
  std::erase_if(specs, [](const TensorSpec& spec) { return spec.role == Role::out; });
  return specs;
}

KnownShapes input_shapes_of(const Op& op, const AnyProblem& problem) {
  KnownShapes shapes;
  for (const TensorSpec& spec : inputs_of(op, problem)) shapes[spec.name] = spec.shape;
  return shapes;
}

FieldValues values_of_problem(const Op& op, const AnyProblem& problem) {
  FieldValues values;
  for (const KeyValue& pair : op.values(problem)) values[pair.key] = pair.value;
  return values;
}

// The fields that a refusal asks for.
std::vector<std::string> asked(const Op& op, const std::string& message) {
  constexpr std::string_view kGive = "give --problem its ";
  std::vector<std::string> names;
  const std::size_t at = message.find(kGive);
  if (at == std::string::npos) return names;
  const std::string list = " " + message.substr(at + kGive.size()) + ",";
  for (const FieldInfo& field : op.fields)
    if (list.find(" " + field.name + ",") != std::string::npos ||
        list.find(" " + field.name + " (") != std::string::npos)
      names.push_back(field.name);
  return names;
}

std::size_t departures(const Op& op, const AnyProblem& problem) {
  std::size_t count = 0;
  for (const KeyValue& pair : split_problem_text(op.print(problem)))
    for (const FieldInfo& field : op.fields) count += field.name == pair.key && field.fallback;
  return count;
}

// The choices of which every other value changes the inputs, whatever it is: an inference may neither ask for them
// nor get them wrong.
std::vector<std::string> decided_by_names(const Op& op, const AnyProblem& problem) {
  const FieldValues values = values_of_problem(op, problem);
  const auto names_of = [&](const AnyProblem& one) {
    std::vector<std::string> names;
    for (const TensorSpec& spec : inputs_of(op, one)) names.push_back(spec.name);
    return names;
  };
  std::vector<std::string> decided;
  for (const FieldInfo& field : op.fields) {
    if (field.type != FieldInfo::Type::flag) continue;
    std::vector<KeyValue> pairs;
    for (const auto& [key, value] : values)
      pairs.push_back({key, key == field.name ? (value == "1" ? "0" : "1") : value});
    try {
      if (names_of(op.parse_pairs(pairs)) != names_of(problem)) decided.push_back(field.name);
    } catch (const InvalidInput&) {
    }
  }
  return decided;
}

class InferenceProperty : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Ops, InferenceProperty, testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const Op& op : catalogue()) names.push_back(op.name);
                           return names;
                         }()));

// Gives fields until the problem is found, as a user does who is asked for them, or who sees that a field kept its
// default.
void expect_way_back(const Op& op, const AnyProblem& problem) {
  const KnownShapes shapes = input_shapes_of(op, problem);
  const std::string text = op.print(problem);
  SCOPED_TRACE(std::string(op.name) + " " + text);
  const FieldValues wanted = values_of_problem(op, problem);
  const auto decided = decided_by_names(op, problem);
  FieldValues given;
  for (std::size_t round = 0; round <= op.fields.size(); ++round) {
    std::vector<KeyValue> pairs;
    std::string so_far;
    for (const auto& [key, value] : given) {
      pairs.push_back({key, value});
      so_far += key + "=" + value + ",";
    }
    SCOPED_TRACE("given " + so_far);
    const std::size_t before = given.size();
    try {
      const AnyProblem found = infer_problem(op, pairs, shapes);
      if (op.print(found) == text) return;
      // Another problem of the same inputs is found only where it is no further from the defaults.
      EXPECT_EQ(input_shapes_of(op, found), input_shapes_of(op, problem)) << op.print(found);
      EXPECT_LE(departures(op, found), departures(op, problem)) << op.print(found);
      const FieldValues values = values_of_problem(op, found);
      for (const std::string& name : decided) EXPECT_EQ(values.at(name), wanted.at(name)) << op.print(found);
      // A field without a default differs only because one that has a default does (a gemm's n, of geglu).
      for (const FieldInfo& field : op.fields)
        if (field.fallback && values.at(field.name) != wanted.at(field.name)) given[field.name] = wanted.at(field.name);
    } catch (const InvalidInput& error) {
      const auto fields = asked(op, error.what());
      ASSERT_FALSE(fields.empty()) << error.what();
      for (const std::string& field : fields) {
        EXPECT_FALSE(given.contains(field)) << error.what();
        EXPECT_EQ(std::count(decided.begin(), decided.end(), field), 0) << error.what();
        given[field] = wanted.at(field);
      }
    }
    ASSERT_GT(given.size(), before) << "nothing new was said";
    if (testing::Test::HasFailure()) return;
  }
  FAIL() << "not found";
}

// One name for a tensor in the header, in files and in messages.
TEST_P(InferenceProperty, TheHeaderNamesEveryTensor) {
  const Op& op = *find_op(GetParam());
  const auto root = default_problem_folder().parent_path().parent_path();
  std::ifstream header(root / "kernels" / op.name / (op.name + ".h"));
  if (!header) GTEST_SKIP() << "no sources here";
  const std::string text((std::istreambuf_iterator<char>(header)), {});
  const std::regex word("\\w+");
  const std::set<std::string> words(std::sregex_token_iterator(text.begin(), text.end(), word), {});
  for (const AnyProblem& problem : random_problems(op))
    for (const TensorSpec& spec : op.tensors(problem, op.dtypes.front()))
      ASSERT_TRUE(words.contains(spec.name)) << spec.name << " of " << op.print(problem);
}

// The conditions that an op writes beside its bools are the same, of outputs too.
TEST_P(InferenceProperty, ConditionsHoldWhereAProblemHasTheTensor) {
  const Op& op = *find_op(GetParam());
  for (const AnyProblem& problem : random_problems(op)) {
    SCOPED_TRACE(op.print(problem));
    const std::vector<Fit> fits = Unification(op, op.values(problem), input_shapes_of(op, problem)).fits();
    ASSERT_EQ(fits.size(), 1u);
    std::vector<std::string> has, should;
    for (const TensorSpec& spec : op.tensors(problem, op.dtypes.front())) has.emplace_back(spec.name);
    for (const TensorRule& rule : op.table.rules)  // of a function of the op's own nothing is known
      if (fits.front().symbols.evaluate(rule.condition).value_or(std::ranges::count(has, rule.name)) != 0)
        should.emplace_back(rule.name);
    ASSERT_EQ(has, should);
  }
}

TEST_P(InferenceProperty, ShapesLeadBackToTheProblem) {
  const Op& op = *find_op(GetParam());
  constexpr int kMost = 500;
  int tried = 0;
  for (const AnyProblem& problem : random_problems(op)) {
    expect_way_back(op, problem);
    if (HasFailure() || ++tried == kMost) return;
  }
}

}  // namespace
}  // namespace noisefloor
