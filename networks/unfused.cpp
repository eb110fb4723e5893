#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "kernels/core/fields.h"
#include "networks/graph.h"

namespace noisefloor::networks {
namespace {

// A node's fields, to read and to change.
class Fields {
 public:
  explicit Fields(const Node& node) : pairs_(node.op->values(node.problem)) {}
  const std::string& operator[](std::string_view name) const { return const_cast<Fields*>(this)->find(name); }
  std::int64_t number(std::string_view name) const { return std::stoll((*this)[name]); }
  bool flag(std::string_view name) const { return (*this)[name] == "1"; }
  void set(std::string_view name, std::string value) { find(name) = std::move(value); }
  void clear(std::initializer_list<const char*> flags) {
    for (const char* flag : flags) set(flag, "0");
  }
  std::string text() const { return join_problem_text(pairs_); }

 private:
  std::string& find(std::string_view name) {
    return std::find_if(pairs_.begin(), pairs_.end(), [&](const KeyValue& pair) { return pair.key == name; })->value;
  }
  std::vector<KeyValue> pairs_;
};

class Counter {
 public:
  explicit Counter(const Graph& graph) : graph_(graph) {}

  void take_apart(const Node& node) {
    if (repeats(node)) return;
    dtype_ = node.dtype;
    Fields f(node);
    if (node.op->name == "gemm") {
      product(node, f);
    } else if (node.op->name == "conv2d") {
      convolution(node, f);
    } else if (node.op->name == "conv3d_temporal") {
      const bool residual = f.flag("residual");
      f.clear({"image_shift", "residual"});
      count("conv3d_temporal", f.text());
      sums(node, residual, f.number("batch") * f.number("frames") * f.number("hw"), f["cout"]);
    } else if (node.op->name == "groupnorm") {
      norm(f);
    } else if (node.op->name == "attention") {
      f.set("layout", "separate");
      count("attention", f.text());
    } else if (node.op->name == "elementwise" && f["op"] == "silu") {
      pointwise("silu", f.number("n") * f.number("hw"), f["channels"]);
    } else if (node.op->name == "temporal_attention") {
      count("attention",
            fmt::format("batch={},heads={},seq_q={},seq_kv={},dim={},scale={}", f.number("batch") * f.number("hw"),
                        f["heads"], f["frames"], f["frames"], f["dim"], f["scale"]));
    } else if (node.op->name != "elementwise" || f["op"] != "nchw_to_nhwc") {  // the way back of a copy
      count(node.op->name, node.text);
    }
  }

  std::vector<CountedProblem> counted() && { return std::move(counted_); }

 private:
  // Rows that stand there once more, which a PyTorch program copies and capture has no op for.
  bool repeats(const Node& node) {
    if (node.op->name != "resample" || Fields(node)["op"] != "concat") return false;
    const auto once = [&](ValueId rows) { return repeated_.contains(rows) ? repeated_.at(rows) : rows; };
    const ValueId x = once(node.values.at(0));
    if (once(node.values.at(1)) != x) return false;
    repeated_[node.values.back()] = x;
    return true;
  }

  // A blend is a sum more behind a layer, since no op multiplies by a learnt number alone: gemm's, or one whose share
  // is in the weights.
  void sums(const Node& node, bool residual, std::int64_t rows, std::string_view channels, bool blend = false) {
    const auto& weight = graph_[node.values.at(1)].source;
    if (residual) pointwise("add", rows, channels);
    if (blend || (weight && weight->share)) pointwise("add", rows, channels);
  }

  void count(std::string_view op_name, const std::string& problem) {
    const Op* op = find_op(op_name);
    add_to(counted_, {op, op->print(op->parse(problem)), dtype_, 1});
  }

  void pointwise(std::string_view operation, std::int64_t rows, std::string_view channels, std::string_view more = "") {
    count("elementwise", fmt::format("op={},hw={},channels={}{}", operation, rows, channels, more));
  }

  void product(const Node& node, Fields& f) {
    const auto& source = graph_[node.values.at(1)].source;
    const std::string n = f["n"], act = f["act"];
    const bool residual = f.flag("residual"), blend = f.flag("blend");
    f.set("act", "none");
    f.clear({"image_shift", "residual", "blend", "part_columns"});
    f.set("images", "1");
    if (source && !source->below.empty()) {
      for (const WeightSource::Below& tensor : source->tensors()) {
        f.set("n", std::to_string(tensor.rows));
        count("gemm", f.text());
      }
    } else {
      f.set("n", std::to_string(act == "geglu" ? 2 * f.number("n") : f.number("n")));
      count("gemm", f.text());
    }
    if (act == "silu" || act == "geglu") pointwise(act, f.number("m"), n);
    sums(node, residual, f.number("m"), n, blend);
  }

  void convolution(const Node& node, Fields& f) {
    if (graph_[node.values.front()].kind == Value::Kind::constant) return;  // Layers::shifted: a sum of images and rows
    if (f.flag("upsample")) {
      count("resample", fmt::format("op=nearest_up2,n={},h={},w={},channels={}", f["n"], f["h"], f["w"], f["cin"]));
      for (const char* side : {"h", "w"}) f.set(side, std::to_string(2 * f.number(side)));
      f.set("upsample", "0");
    }
    const std::string act = f["act"], gain = f["gain"];
    const bool residual = f.flag("residual");
    const auto out = [&](const char* side) {
      return (f.number(side) + 2 * f.number("pad") - f.number("kernel")) / f.number("stride") + 1;
    };
    const std::int64_t rows = f.number("n") * out("h") * out("w");
    if (f["kernel"] == "1" && f["stride"] == "1" && f["pad"] == "0") {
      count("gemm", fmt::format("m={},n={},k={},bias={}", rows, f["cout"], f["cin"], f["bias"]));
    } else {
      f.clear({"image_shift", "residual", "stats"});
      f.set("act", "none");
      f.set("gain", "1");
      count("conv2d", f.text());
    }
    if (act != "none") pointwise(act, rows, f["cout"]);
    if (residual) pointwise("add", rows, f["cout"], ",scale=" + gain);
  }

  void norm(Fields& f) {
    const std::string fusion = f["fusion"];
    f.clear({"stats", "packed", "coefficients"});
    for (const char* choice : {"fusion", "slab_stats"}) f.set(choice, "none");
    count("groupnorm", f.text());
    if (fusion == "silu") pointwise("silu", f.number("n") * f.number("hw"), f["channels"]);
    if (fusion == "silu+ss")
      count("elementwise",
            fmt::format("op=silu_fma,n={},hw={},channels={},broadcast=1", f["n"], f["hw"], f["channels"]));
  }

  const Graph& graph_;
  DType dtype_ = DType::fp32;
  std::map<ValueId, ValueId> repeated_;  // what stands in it, several times
  std::vector<CountedProblem> counted_;
};

}  // namespace

std::vector<CountedProblem> count_unfused(const Graph& graph) {
  Counter counter(graph);
  for (const Node& node : graph.nodes()) counter.take_apart(node);
  return std::move(counter).counted();
}

}  // namespace noisefloor::networks
