// Tensors of an op's problem in host memory, its oracle and its host variant run on them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/catalogue.h"
#include "kernels/core/op.h"

namespace noisefloor {

// Inputs are filled as their specs say, outputs with NaN; what a launch updates is an input till then. A tensor is
// given by its name or by its place in specs.
struct HostData {
  const Op& op;
  AnyProblem problem;
  DType dtype;
  std::vector<TensorSpec> specs;
  std::vector<std::vector<std::byte>> storage;
  std::vector<std::vector<std::byte>> before = {};  // of the last launch

  HostData(const Op& the_op, AnyProblem the_problem, DType the_dtype, unsigned seed)
      : op(the_op), problem(std::move(the_problem)), dtype(the_dtype), specs(op.tensors(problem, dtype)) {
    std::mt19937 engine(seed);
    for (const TensorSpec& spec : specs) {
      auto& bytes = storage.emplace_back(spec.bytes());
      if (spec.fill.kind == Fill::Kind::op) {
        op.fill(problem, dtype, storage.size() - 1, bytes.data());
        continue;
      }
      std::normal_distribution<double> normal(spec.fill.mean, spec.fill.stddev);
      for (std::int64_t i = 0; i < spec.elements(); ++i)
        store_element(spec.dtype, bytes.data(), i, spec.role == Role::out ? NAN : normal(engine));
    }
  }

  HostData(const Op& the_op, const std::string& text, DType the_dtype, unsigned seed)
      : HostData(the_op, the_op.parse(text), the_dtype, seed) {}

  bool has(const std::string& name) const {
    return std::ranges::any_of(specs, [&](const TensorSpec& spec) { return spec.name == name; });
  }
  std::size_t index(const std::string& name) const {
    for (std::size_t i = 0; i < specs.size(); ++i)
      if (specs[i].name == name) return i;
    throw std::out_of_range("no tensor " + name);
  }
  std::vector<double> values(const std::string& name) const {
    std::vector<double> all(static_cast<std::size_t>(specs[index(name)].elements()));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = get(name, static_cast<std::int64_t>(i));
    return all;
  }
  double get(std::size_t tensor, std::int64_t element) const {
    return load_element(specs[tensor].dtype, storage[tensor].data(), element);
  }
  double get(const std::string& name, std::int64_t element) const { return get(index(name), element); }
  void set(std::size_t tensor, std::int64_t element, double value) {
    store_element(specs[tensor].dtype, storage[tensor].data(), element, value);
  }
  void set(std::size_t tensor, const std::vector<double>& values) {
    if (static_cast<std::int64_t>(values.size()) != specs[tensor].elements())
      throw std::out_of_range(specs[tensor].name);
    for (std::size_t i = 0; i < values.size(); ++i) set(tensor, static_cast<std::int64_t>(i), values[i]);
  }
  void set(const std::string& name, const std::vector<double>& values) { set(index(name), values); }

  std::vector<double> reference(std::size_t tensor, const std::vector<std::int64_t>& elements) const {
    std::vector<HostTensor> inputs;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const auto& bytes = specs[i].role == Role::inout && !before.empty() ? before[i] : storage[i];
      inputs.push_back({specs[i].dtype, specs[i].role == Role::out ? nullptr : bytes.data()});
    }
    std::vector<double> values(elements.size());
    op.reference(problem, dtype, inputs, tensor, elements, values);
    return values;
  }
  std::vector<double> reference(std::size_t tensor) const {
    std::vector<std::int64_t> all(static_cast<std::size_t>(specs[tensor].elements()));
    std::iota(all.begin(), all.end(), 0);
    return reference(tensor, all);
  }
  std::vector<double> reference(const std::string& name) const { return reference(index(name)); }

  // The op's first variant, which must be the host's, prepared where it prepares.
  Status run_host() {
    const DeviceInfo device{0, 2, 1 << 20, 0};
    const LaunchContext context{nullptr, &device, false};
    const AnyVariant& host = op.variants.front();
    if (host.kind != Kind::host) throw std::logic_error("the first variant is not the host's");
    std::vector<void*> pointers;
    before = storage;
    for (auto& bytes : storage) pointers.push_back(bytes.data());
    Aligned workspace(host.workspace_bytes(problem, dtype, device));
    Aligned prepared(host.prepared_bytes(problem, dtype));
    if (const Status status = host.prepare(problem, dtype, pointers, prepared.data, context); !status.ok())
      return status;
    return host.launch(problem, dtype, pointers, {workspace.data, prepared.data}, context);
  }

  // What is wrong with the outputs, compared with the oracle under the op's tolerance, or a `max_error` of the test's;
  // "" when nothing is.
  std::string difference(double max_error = 0) const {
    Tolerance tolerance = op.tolerance(problem, dtype);
    if (max_error > 0) tolerance = {max_error, tolerance.l2_error * max_error / tolerance.max_error};
    for (std::size_t tensor = 0; tensor < specs.size(); ++tensor) {
      if (specs[tensor].role == Role::in) continue;
      const std::vector<double> expected = reference(tensor);
      double squares = 0, error_squares = 0;
      for (const double value : expected) squares += value * value;
      const double rms = std::sqrt(squares / static_cast<double>(expected.size()));
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const double value = get(tensor, static_cast<std::int64_t>(i));
        const double error = std::abs(value - expected[i]);
        if (!(error <= tolerance.max_error * (std::abs(expected[i]) + rms)))
          return std::string(specs[tensor].name) + "[" + std::to_string(i) + "] is " + std::to_string(value) +
                 ", expected " + std::to_string(expected[i]);
        error_squares += error * error;
      }
      if (!(std::sqrt(error_squares) <= tolerance.l2_error * std::sqrt(squares)))
        return std::string(specs[tensor].name) + ": L2 error " + std::to_string(std::sqrt(error_squares / squares));
    }
    return "";
  }

 private:
  // 256-byte aligned, NaN everywhere: a value read before it is written shows.
  struct Aligned {
    explicit Aligned(std::size_t bytes) : floats(bytes / sizeof(float) + 65, NAN), data(floats.data()) {
      std::size_t space = floats.size() * sizeof(float);
      std::align(256, bytes, data, space);
    }
    std::vector<float> floats;
    void* data;
  };
};

// The oracle's and the host variant's values of outputs are these, of inputs that are those, in fp32.
using Values = std::vector<std::pair<const char*, std::vector<double>>>;
inline void by_hand(const char* op, const std::string& text, const Values& inputs, const Values& outputs) {
  SCOPED_TRACE(text);
  const Op& found = *find_op(op);
  HostData data(found, text, DType::fp32, 1);
  for (const auto& [name, values] : inputs) data.set(name, values);
  ASSERT_TRUE(data.run_host().ok());
  for (const auto& [name, expected] : outputs) {
    const std::vector<double> oracle = data.reference(name);
    ASSERT_EQ(oracle.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double scale = std::max(1.0, std::abs(expected[i]));
      EXPECT_NEAR(oracle[i], expected[i], 1e-9 * scale) << name << i;
      EXPECT_NEAR(data.get(name, static_cast<std::int64_t>(i)), expected[i], 2e-6 * scale) << name << i;
    }
  }
}

}  // namespace noisefloor
