#include "networks/fold_skips.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/conv2d/conv2d.h"
#include "kernels/gemm/gemm.h"
#include "kernels/groupnorm/groupnorm.h"
#include "kernels/resample/resample.h"
#include "networks/graph_copy.h"

namespace noisefloor::networks {
namespace {

bool is(const Node& node, std::string_view op) {
  return node.op == find_op(op);
}

ValueId input_of(const Node& node, std::string_view name) {
  const auto specs = node.op->tensors(node.problem, node.dtype);
  const auto place = std::ranges::find_if(specs, [&](const TensorSpec& spec) { return spec.name == name; });
  return node.values.at(static_cast<std::size_t>(place - specs.begin()));
}

// Of a 1x1 and nothing else: x, weight and bias are the first tensors of a convolution and of a product alike.
constexpr std::size_t kX = 0, kWeight = 1, kBias = 2;
struct Product {
  std::int64_t channels;  // of x
  bool bias;
};
std::optional<Product> product_of(const Node& node) {
  if (is(node, "conv2d")) {
    const auto& p = node.problem.as<conv2d::Problem>();
    conv2d::Problem plain{.n = p.n, .h = p.h, .w = p.w, .cin = p.cin, .cout = p.cout, .kernel = 1, .pad = 0};
    plain.bias = p.bias;
    if (node.text == node.op->print(AnyProblem(plain))) return Product{p.cin, p.bias};
  }
  if (is(node, "gemm")) {
    const auto& p = node.problem.as<gemm::Problem>();
    const gemm::Problem plain{.m = p.m, .n = p.n, .k = p.k, .bias = p.bias};
    if (node.text == node.op->print(AnyProblem(plain))) return Product{p.k, p.bias};
  }
  return std::nullopt;
}

// One weight for the sum of two, where both are whole tensors or the same rows of such.
std::optional<WeightSource> sum_of(const Value& a, const Value& b) {
  const auto rows = [](const WeightSource& source) {
    const bool plain = source.layout == WeightSource::Layout::plain && source.below.empty() && !source.share &&
                       source.times == 1 && source.plus.empty();
    return plain ? std::optional(std::pair(source.first_row, source.rows == 0 ? source.all_rows() : source.rows))
                 : std::nullopt;
  };
  if (!a.source || !b.source || a.source->file != b.source->file) return std::nullopt;
  if (!rows(*a.source) || rows(*a.source) != rows(*b.source)) return std::nullopt;
  WeightSource sum = *a.source;
  sum.plus = b.source->name;
  return sum;
}

// What becomes of a convolution and the 1x1 that it adds.
struct Fold {
  const Node* product;
  const Node* concat = nullptr;  // that the product reads, in two
};

class Folding {
 public:
  Folding(const Network& network, const Runs& runs)
      : graph_(network.graph), runs_(runs), writer_(from().values().size()), readers_(writer_.size()) {
    for (const Node& node : from().nodes()) {
      const auto specs = node.op->tensors(node.problem, node.dtype);
      for (std::size_t i = 0; i < specs.size(); ++i) {
        const ValueId value = from().whole(node.values[i]);
        if (specs[i].role == Role::out)
          writer_[value] = &node;
        else
          readers_[value].push_back({&node, node.values[i] == value ? i : kPart});
      }
    }
    for (const ValueId output : network.output_values()) readers_[from().whole(output)].push_back({nullptr, kPart});
    for (const Node& node : from().nodes())
      if (const Node* product = added_by(node)) folds_[&node] = {product};
    for (const Node& node : from().nodes())
      if (is(node, "resample") && read_in_two(node)) concats_.insert(&node);
    for (auto fold = folds_.begin(); fold != folds_.end();) {
      const Node* before = writer_[fold->second.product->values[kX]];
      if (concats_.contains(before)) fold->second.concat = before;
      fold = fold->second.concat || folded(*fold->first, *fold->second.product, nullptr) ? std::next(fold)
                                                                                         : folds_.erase(fold);
    }
    for (const auto& [convolution, fold] : folds_) products_.insert(fold.product);
    for (const Node& node : from().nodes())
      if (const Node* upsample = repeated_by(node)) upsamples_[&node] = upsample, repeated_.insert(upsample);
  }

  void run(Network& network) {
    for (const Node& node : from().nodes()) {
      if (concats_.contains(&node) || products_.contains(&node) || repeated_.contains(&node)) continue;
      if (const auto fold = folds_.find(&node); fold != folds_.end())
        convolve(node, fold->second);
      else if (const auto up = upsamples_.find(&node); up != upsamples_.end())
        graph_.add(node, AnyProblem(repeating(node)), graph_.inputs_of(node, {{"residual", up->second->values[kX]}}));
      else if (is(node, "groupnorm") && concats_.contains(writer_[node.values[kX]]))
        normalise(node, *writer_[node.values[kX]]);
      else
        graph_.copy(node);
    }
    graph_.finish(network);
  }

 private:
  static constexpr std::size_t kPart = static_cast<std::size_t>(-1);
  struct Reader {
    const Node* node;  // null: the network's caller
    std::size_t tensor;
  };

  const Graph& from() const { return graph_.from(); }

  // The 1x1 whose output a convolution adds in front of everything but its gain, and nobody else reads.
  const Node* added_by(const Node& node) const {
    if (!is(node, "conv2d")) return nullptr;
    const auto& p = node.problem.as<conv2d::Problem>();
    if (!p.residual || p.upsample || p.affine || p.act != conv2d::Activation::none || p.side > 0) return nullptr;
    const ValueId residual = input_of(node, "residual");
    const Node* product = from().whole(residual) == residual ? writer_[residual] : nullptr;
    if (!product || readers_[residual].size() != 1) return nullptr;
    const auto found = product_of(*product);
    if (!found || !from()[product->values[kWeight]].source) return nullptr;
    if (found->bias && p.bias && !sum_of(from()[node.values[kBias]], from()[product->values[kBias]])) return nullptr;
    return product;
  }

  // The convolution with the product in it, of one tensor or of a concatenation's two; none where it cannot be run.
  std::optional<conv2d::Problem> folded(const Node& node, const Node& product, const Node* concat) const {
    auto p = node.problem.as<conv2d::Problem>();
    const Product beside = *product_of(product);
    p.residual = false;
    p.bias = p.bias || beside.bias;
    p.side_skip = concat ? concat->problem.as<resample::Problem>().skip_channels : 0;
    p.side = beside.channels - p.side_skip;
    return runs_(*node.op, AnyProblem(p), node.dtype) ? std::optional(p) : std::nullopt;
  }

  // The upsample whose output a convolution adds, and nobody else reads.
  const Node* repeated_by(const Node& node) const {
    if (!is(node, "conv2d") || !node.problem.as<conv2d::Problem>().residual) return nullptr;
    const ValueId residual = input_of(node, "residual");
    const Node* upsample = from().whole(residual) == residual ? writer_[residual] : nullptr;
    if (!upsample || readers_[residual].size() != 1 || !is(*upsample, "resample")) return nullptr;
    const auto p = repeating(node);
    const auto& up = upsample->problem.as<resample::Problem>();
    if (up.op != resample::Operation::nearest_up2 || p.upsample || up.n != p.n || 2 * up.h != p.out_h() ||
        2 * up.w != p.out_w() || up.channels != p.cout)
      return nullptr;
    return runs_(*node.op, AnyProblem(p), node.dtype) ? upsample : nullptr;
  }

  static conv2d::Problem repeating(const Node& node) {
    auto p = node.problem.as<conv2d::Problem>();
    p.residual_upsample = true;
    return p;
  }

  static groupnorm::Problem of_two(const Node& norm, const Node& concat) {
    auto p = norm.problem.as<groupnorm::Problem>();
    p.skip_channels = concat.problem.as<resample::Problem>().skip_channels;
    return p;
  }

  // Whether everybody who reads a concatenation can read its parts.
  bool read_in_two(const Node& concat) const {
    const auto& p = concat.problem.as<resample::Problem>();
    if (p.op != resample::Operation::concat) return false;
    const auto& readers = readers_[concat.values.back()];
    return !readers.empty() && std::ranges::all_of(readers, [&](const Reader& reader) {
      if (!reader.node || reader.tensor != kX) return false;
      if (is(*reader.node, "groupnorm")) {
        const auto& norm = reader.node->problem.as<groupnorm::Problem>();
        return norm.channels == p.out_channels() && norm.skip_channels == 0 && !norm.given() && !norm.coefficients &&
               runs_(*reader.node->op, AnyProblem(of_two(*reader.node, concat)), reader.node->dtype);
      }
      const auto fold =
          std::ranges::find_if(folds_, [&](const auto& one) { return one.second.product == reader.node; });
      return fold != folds_.end() && product_of(*reader.node)->channels == p.out_channels() &&
             folded(*fold->first, *reader.node, &concat);
    });
  }

  void normalise(const Node& node, const Node& concat) {
    auto inputs = graph_.inputs_of(node, {{"x", concat.values[kX]}});
    inputs["skip"] = graph_.take(concat.values[kSkip]);
    graph_.add(node, AnyProblem(of_two(node, concat)), inputs);
  }

  void convolve(const Node& node, const Fold& fold) {
    const auto& [product, concat] = fold;
    const conv2d::Problem problem = *folded(node, *product, concat);
    auto inputs = graph_.inputs_of(node, {{"residual", node.values[kX]}});  // in whose place
    inputs.erase("residual");
    inputs["side"] = graph_.take(concat ? concat->values[kX] : product->values[kX]);
    if (concat) inputs["side_skip"] = graph_.take(concat->values[kSkip]);
    inputs["w_side"] = graph_.take(product->values[kWeight]);
    if (product_of(*product)->bias) {
      const Value& added = from()[product->values[kBias]];
      const auto sum = inputs.contains("bias") ? sum_of(from()[node.values[kBias]], added) : std::nullopt;
      inputs["bias"] = sum ? graph_.to().weight(*sum, added.shape, added.dtype) : graph_.take(product->values[kBias]);
    }
    graph_.add(node, AnyProblem(problem), inputs);
  }

  static constexpr std::size_t kSkip = 1;  // of a concatenation's tensors
  GraphCopy graph_;
  const Runs& runs_;
  std::vector<const Node*> writer_;                      // by value
  std::vector<std::vector<Reader>> readers_;             // by value, of it or of its parts
  std::map<const Node*, Fold> folds_;                    // by convolution
  std::map<const Node*, const Node*> upsamples_;         // by the convolution that repeats its residual's pixels
  std::set<const Node*> products_, concats_, repeated_;  // that fall away
};

}  // namespace

bool runs_on_sm90a(const Op& op, const AnyProblem& problem, DType dtype) {
  return std::ranges::any_of(op.variants, [&](const AnyVariant& variant) {
    return variant.kind == Kind::ptx && variant.arch == Arch::sm90a && variant.can_run(problem, dtype);
  });
}

void fold_skips(Network& network, const Runs& runs) {
  Folding(network, runs).run(network);
}

}  // namespace noisefloor::networks
