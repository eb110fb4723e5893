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
      auto fields = asked(op, error.what());
      for (const FieldInfo& field : op.fields)  // a default that the sizes do not allow, which decides all others
        if (std::string_view(error.what()).find("problem: " + field.name + "=") != std::string_view::npos)
          fields = {field.name};
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
  std::string text((std::istreambuf_iterator<char>(header)), {});
  std::ifstream operands(root / "kernels/convolution/convolution.h");
  if (text.find("convolution::Operands") != std::string::npos)
    text.append(std::istreambuf_iterator<char>(operands), {});
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

// ---- what is said, and that it is found fast

std::string inferred(const std::string& op_name, const std::string& fields, const KnownShapes& shapes) {
  const Op& op = *find_op(op_name);
  try {
    return op.print(infer_problem(op, split_problem_text(fields), shapes));
  } catch (const InvalidInput& error) {
    return error.what();
  }
}

using Shape = std::vector<std::int64_t>;

KnownShapes with(KnownShapes shapes, const char* name, Shape shape, const char* other = nullptr, Shape its = {}) {
  shapes[name] = std::move(shape);
  if (other != nullptr) shapes[other] = std::move(its);
  return shapes;
}

// That shapes lead back at all the property test shows: of several problems it is the simplest, what no shape says is
// asked for, and what clashes is named with what would fit. A problem is said whole, of a refusal some words.
TEST(ProblemInference, SaysTheProblemOrWhatIsWrong) {
  const KnownShapes product = {{"a", {{5, 3}}}, {"b", {{7, 3}}}, {"bias", {{7}}}};
  const KnownShapes two = {{"a", {{5, 3}}}, {"b", {{7, 3}}}};
  const KnownShapes layer = {{"w", {{7, 3, 3, 6}}},     {"scale", {{7}}},       {"shift", {{7}}},
                             {"image_shift", {{2, 7}}}, {"x", {{2, 9, 10, 6}}}, {"residual", {{2, 9, 10, 7}}}};
  const KnownShapes small = with(layer, "x", {2, 18, 20, 6});
  // A padding of 5 gives a square image of 8 x 8 the residual of an upsampled one.
  const KnownShapes square = {{"x", {{2, 8, 8, 6}}}, {"w", {{7, 3, 3, 6}}}, {"residual", {{2, 16, 16, 7}}}};
  const KnownShapes step = {{"x", {{3, 40}}}, {"model_output", {{3, 40}}}, {"coefficients", {{50, 12}}}};
  const KnownShapes guided = with(step, "model_output", {2, 3, 40});
  const KnownShapes norm = {{"x", {{2, 16, 96}}}, {"gamma", {{96}}}, {"beta", {{96}}}};
  const std::string conv = "n=2,h=9,w=10,cin=6,cout=7", operands = "bias=0,affine=1,image_shift=1,residual=1";
  const auto says = [](const char* op, const char* given, const KnownShapes& shapes, const std::string& words) {
    const std::string text = inferred(op, given, shapes);
    const bool whole = words.find(' ') == std::string::npos;  // a problem, and no sentence
    EXPECT_TRUE(whole ? text == words : text.find(words) != std::string::npos) << text << "\nnot: " << words;
  };
  says("gemm", "act=geglu,scale=0.5", with(product, "b", {8, 3}, "bias", {8}), "m=5,n=4,k=3,act=geglu,scale=0.5");
  says("conv2d", "", layer, conv + "," + operands);
  says("conv2d", "", with(layer, "residual", {2, 5, 5, 7}), conv + ",stride=2," + operands);
  says("conv2d", "", with(layer, "residual", {2, 18, 20, 7}), conv + ",upsample=1," + operands);
  says("conv2d", "stride=1", small, "n=2,h=18,w=20,cin=6,cout=7," + operands + ",residual_upsample=1");
  says("conv2d", "residual_upsample=0", small, "n=2,h=18,w=20,cin=6,cout=7,stride=2," + operands);

  // Asked for.
  says("sampler_step", "solver=ddim", guided, "give --problem its guidance (0 to 100, but not 0)");
  for (const std::string guidance : {"guidance=3", "guidance=1e-310"})  // that is below what std::stod takes
    says("sampler_step", ("solver=ddim," + guidance).c_str(), guided, "batch=3,elements=40,solver=ddim," + guidance);
  says("sampler_step", "solver=ddim,guidance=3", with(guided, "previous_frame", {3, 40}), "give --problem its blend");
  says("sampler_step", "", step, "give --problem its solver (ddim, ");
  says("conv2d", "", square, "give --problem its pad (1, 5), upsample (0, 1)");
  says("conv2d", "upsample=1", square, "n=2,h=8,w=8,cin=6,cout=7,upsample=1,bias=0,residual=1");
  says("conv2d", "pad=5", square, "n=2,h=8,w=8,cin=6,cout=7,pad=5,bias=0,residual=1");
  says("attention", "", {{"qkv", {{2, 7, 3, 3, 8}}}}, "layout (packed_3hd, packed_h3d)");  // 3 heads, or 3 tensors
  says("groupnorm", "", norm, "give --problem its groups");
  // A tensor of unknown shape (--random): the others leave it one, or not.
  says("gemm", "", {{"a", {{5, 3}}}, {"b", {{7, 3}}}, {"bias", std::nullopt}}, "m=5,n=7,k=3");
  says("gemm", "", {{"a", {{5, 3}}}, {"b", std::nullopt}}, "give --problem its n");

  // A given field that clashes.
  says("gemm", "m=6", product, "'a' is [5, 3], there [6, 3] (m=6); m=6 clashes with them, m=5 would fit");
  says("gemm", "bias=0,k=3", product, "'bias' is not one of its inputs; bias=0 clashes with them, bias=1 would fit");
  says("sampler_step", "solver=ddim,guidance=0", guided,
       "'model_output' is [2, 3, 40], there [3, 40]; guidance=0 clashes with them, another would fit");
  says("groupnorm", "groups=5", norm, "groups=5 does not divide");
  says("groupnorm", "group=5", norm, "did you mean 'groups'");
  // A tensor that does. What would fit by the fewest fields comes first; values that nobody gave are no reason.
  says("gemm", "", with(two, "b", {7, 4}), "there [7, 3] (k=3)");
  says("gemm", "", {{"a", {{5, 3}}}, {"bias", {{7}}}}, "its 'b' [7, 3] is missing (--random b makes it)");
  says("gemm", "", with(two, "c", {7}), "'c' is not one of its inputs");
  says("gemm", "", with(two, "a", {5, 3, 1}), "'a' is [5, 3, 1], there");
  says("gemm", "", with(two, "a", {0, 3}), "'a' is [0, 3], there");
  says("gemm", "", with(two, "a", {std::int64_t{1} << 62, 3}), "'a' is [4611686018427387904, 3]");
  says("gemm", "", {}, "its inputs are a [m, k]");
  for (const char* words : {"'image_shift' is [4, 7], there [1, 7]", "images=4 does not divide m=6"})
    says("gemm", "", with(two, "a", {6, 3}, "image_shift", {4, 7}), words);
  says("resample", "op=concat", {{"x", {{2, 3, 4, 5}}}}, "its 'skip' [2, 3, 4, 1] is missing");
  says("conv2d", "", with(square, "x", {2, 9, 10, 6}, "residual", {2, 9, 11, 7}),
       "is [2, 9, 11, 7], there [2, 9, 10, 7]");
  says("sampler_step", "solver=ddim", with(step, "history", {3, 40}), "'history' is not one of its inputs");
  says("groupnorm", "groups=4", with(norm, "x", {2, 6, 95}), "'x' is [2, 6, 95], there [2, 6, 96] (channels=96");
  says("groupnorm", "groups=32", with(norm, "scale_shift", {2, 96}), "'scale_shift' is [2, 96], there [2, 192]");
}

// Problems of real networks: the tensors and the fields that shapes do not say lead back, in bounded time.
TEST(ProblemInference, EveryShippedProblemIsFoundFast) {
  for (const ProblemEntry& entry : load_problems(default_problem_folder())) {
    const Op* op = find_op(entry.op->name);
    if (op == nullptr) continue;  // whole networks
    SCOPED_TRACE(op->name + " " + entry.text);
    const KnownShapes shapes = input_shapes_of(*op, entry.problem);
    EXPECT_EQ(inferred(op->name, entry.text, shapes), entry.text);
    // With nothing said: the problem, one of the same tensors that is as simple, or a question. Never another failure.
    const std::string found = inferred(op->name, "", shapes);
    if (found.find("give --problem") != std::string::npos) continue;
    try {
      EXPECT_EQ(input_shapes_of(*op, op->parse(found)), shapes) << found;
    } catch (const InvalidInput&) {
      ADD_FAILURE() << found;
    }
  }
}

TEST(ProblemInference, EndsWhateverTheTensorsAre) {
  // As many extents and tensors as are let in, none of which fits.
  KnownShapes shapes;
  std::int64_t extent = 2;
  for (const char* name : {"x", "w", "bias", "scale", "shift", "image_shift", "residual", "model_output", "q", "k", "v",
                           "qkv", "a", "b", "c", "coefficients"})
    for (int i = 0; i < 5; ++i) {
      if (!shapes[name]) shapes[name].emplace();
      shapes[name]->push_back(extent += 7);
    }
  for (const Op& op : catalogue()) EXPECT_NE(inferred(op.name, "", shapes), "") << op.name;
}

}  // namespace
}  // namespace noisefloor
