#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "bench/platform/refusal.h"
#include "kernels/catalogue.h"
#include "python/arguments.h"
#include "python/with_python.h"

namespace nb = nanobind;

namespace noisefloor::python {
namespace {

struct LoadedPlan {
  std::shared_ptr<const Plan> plan;

  using Line = std::tuple<std::string, std::string, std::string, std::string>;  // op, dtype, problem, variant
  LoadedPlan(const std::string& file, const std::string& device, const std::vector<Line>& lines);
};

constexpr std::array<std::string_view, 2> kLibraries{"cublaslt", "cudnn"};  // a plan names their algorithms after them

// What a with of `use_plan` holds: a Plan or None. The GIL guards the static.
nb::object used_plan() {
  static PyObject* get = nullptr;
  if (get == nullptr)
    get = outlive_python(
        [] { return nb::object(nb::module_::import_("noisefloor._plan").attr("used").attr("get")).release().ptr(); });
  PyObject* const used = outlive_python([] { return PyObject_CallNoArgs(get); });
  if (used == nullptr) nb::raise_python_error();
  return nb::steal(used);
}

void check_variant(const Op& op, const std::string& variant) {
  std::vector<std::string> names;
  for (const AnyVariant& one : op.variants) names.push_back(one.name);
  const auto is_of = [&](std::string_view library) { return (variant + '_').starts_with(std::string(library) + '_'); };
  if (std::ranges::count(names, variant) == 0 && std::ranges::none_of(kLibraries, is_of))
    throw refusal("{} has no variant '{}'{}", op.name, variant, did_you_mean(variant, names));
}

LoadedPlan::LoadedPlan(const std::string& file, const std::string& device, const std::vector<Line>& lines) {
  static std::atomic<std::uint64_t> plans{0};
  auto made = std::make_shared<Plan>();
  made->file = file;
  made->device = device;
  made->number = ++plans;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto& [name, dtype, problem, variant] = lines[i];
    const auto refuse = [&](const std::string& what) {
      throw refusal("{} is not a plan: line {}: {}", file, i + 2, what);
    };
    const Op* const op = find_op(name);
    const std::optional<DType> type = parse_dtype(dtype);
    if (op == nullptr) refuse("unknown op '" + name + "'");
    if (!type) refuse("unknown dtype '" + dtype + "'");
    std::string key;
    try {
      key = plan_key(*op, *type, op->parse(problem));
      check_variant(*op, variant);
    } catch (const InvalidInput& error) {
      refuse(error.what());
    }
    if (!made->variants.emplace(key, variant).second) refuse(key + " is there twice");
  }
  plan = made;
}

}  // namespace

std::shared_ptr<const Plan> plan_of_call(nb::handle plan) {
  const nb::object used = plan.is_none() ? used_plan() : nb::borrow(plan);
  if (used.is_none()) return nullptr;
  if (nb::isinstance<LoadedPlan>(used)) return nb::cast<const LoadedPlan&>(used).plan;
  return nb::cast<LoadedPlan>(nb::module_::import_("noisefloor._plan").attr("plan_of")(used)).plan;
}

void define_plan(nb::module_& m) {
  nb::class_<LoadedPlan>(m, "Plan")
      .def(nb::init<const std::string&, const std::string&, const std::vector<LoadedPlan::Line>&>())
      .def_prop_ro("file", [](const LoadedPlan& self) { return self.plan->file; })
      .def_prop_ro("device", [](const LoadedPlan& self) { return self.plan->device; })
      .def("__len__", [](const LoadedPlan& self) { return self.plan->variants.size(); });
}

}  // namespace noisefloor::python
