#include "bench/python/plan.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>

#include "kernels/catalogue.h"

namespace nb = nanobind;

namespace noisefloor::python {
namespace {

thread_local std::shared_ptr<const Plan> used_plan;

nb::object use_plan(nb::handle plan) {
  const std::shared_ptr<const Plan> before = used_plan;
  used_plan = plan.is_none() ? nullptr : nb::cast<const LoadedPlan&>(plan).plan;
  return before ? nb::cast(LoadedPlan(before)) : nb::none();
}

}  // namespace

LoadedPlan::LoadedPlan(const std::string& file, const std::string& device, const std::vector<Line>& lines) {
  static std::atomic<std::uint64_t> plans{0};
  auto made = std::make_shared<Plan>();
  made->file = file;
  made->device = device;
  made->number = ++plans;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto& [name, dtype, problem, variant] = lines[i];
    const auto refuse = [&](const std::string& what) {
      throw InvalidInput(fmt::format("{} is not a plan: line {}: {}", file, i + 2, what));
    };
    const Op* const op = find_op(name);
    const std::optional<DType> type = parse_dtype(dtype);
    if (op == nullptr) refuse("unknown op '" + name + "'");
    if (!type) refuse("unknown dtype '" + dtype + "'");
    std::string key;
    try {
      key = plan_key(*op, *type, op->parse(problem));
    } catch (const InvalidInput& error) {
      refuse(error.what());
    }
    if (!made->variants.emplace(key, variant).second) refuse(key + " is there twice");
  }
  plan = made;
}

std::shared_ptr<const Plan> plan_of_call(nb::handle plan) {
  if (plan.is_none()) return used_plan;
  if (nb::isinstance<LoadedPlan>(plan)) return nb::cast<const LoadedPlan&>(plan).plan;
  return nb::cast<LoadedPlan>(nb::module_::import_("noisefloor._plan").attr("plan_of")(plan)).plan;
}

void define_plan(nb::module_& m) {
  nb::class_<LoadedPlan>(m, "Plan")
      .def(nb::init<const std::string&, const std::string&, const std::vector<LoadedPlan::Line>&>())
      .def_prop_ro("file", [](const LoadedPlan& self) { return self.plan->file; })
      .def_prop_ro("device", [](const LoadedPlan& self) { return self.plan->device; })
      .def("__len__", [](const LoadedPlan& self) { return self.plan->variants.size(); });
  m.def("use_plan", use_plan, nb::arg("plan").none());
}

}  // namespace noisefloor::python
