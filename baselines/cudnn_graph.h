// A graph of pointwise operations, convolutions or attention for cuDNN, without its headers: cudnn_frontend.h takes
// more than a minute to compile, so cudnn_graph.cpp alone includes it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/core/device.h"
#include "kernels/core/dtype.h"
#include "kernels/core/status.h"

namespace noisefloor::cudnn {

enum class Pointwise { identity, add, multiply, minimum, maximum, relu, swish };

long version();  // throws LibraryMissing

// Extents and strides in elements, outermost first.
struct Layout {
  std::vector<std::int64_t> extents;
  std::vector<std::int64_t> strides;
};
inline Layout channels_last(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
  return {{n, c, h, w}, {c * h * w, 1, c * w, c}};
}

// Of images [n, c, h, w] in channels-last order, and weights [out, in, kh, kw] in the same; pads, strides along h and
// w.
struct ConvolutionPlace {
  std::vector<std::int64_t> pad;
  std::vector<std::int64_t> stride;
};

// Built once, then run. Intermediate tensors are fp32 and live in registers where an engine can fuse them; so is all
// arithmetic. Node numbers identify tensors. The functions throw LibraryRefused with cuDNN's words.
class Graph {
 public:
  Graph();  // throws LibraryMissing
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  int input(DType dtype, const Layout& layout);
  int scalar(float value);  // passed by value
  int pointwise(Pointwise operation, int a);
  int pointwise(Pointwise operation, int a, int b);
  // softmax(q k^T scale) v of tensors [batch, heads, sequence, head size]; `lse` [batch, heads, sequence, 1] where it
  // is asked for, else -1.
  struct Attention {
    int out, lse;
  };
  Attention attention(int q, int k, int v, float scale, bool lse);
  int convolution(int x, int w, const ConvolutionPlace& place);
  // The gradient of that convolution with respect to its input, which is a transposed convolution: `dy` are its inputs,
  // w [channels of dy, channels of the result, kh, kw], and `extents` those of the result.
  int transposed_convolution(int dy, int w, const ConvolutionPlace& place, const std::vector<std::int64_t>& extents);
  // The gradient of that convolution with respect to its weights, of `extents` [channels of dy, channels of x, kh, kw].
  int weight_gradient(int dy, int x, const ConvolutionPlace& place, const std::vector<std::int64_t>& extents);
  int channel_sums(int x, std::int64_t channels);  // [1, channels, 1, 1]: over images and pixels
  void output(int node, DType dtype, const Layout& layout);

  // Asks heuristics A, B and the fallback list, and builds the engine configurations that they offer, best guesses
  // first and several side by side, until `budget_seconds` are spent: an engine compiles its kernel when it is built,
  // in up to a second. With `wanted`, those configurations alone, by their names; all of them, or it throws.
  void build(double budget_seconds, const std::vector<std::string>& wanted = {});
  int plans() const;
  // "40 offered", and how many of them were not built where the budget cut their list.
  std::string tally() const;
  std::string plan_name(int plan) const;
  int plan_named(const std::string& name) const;  // throws where there is none
  std::size_t workspace_bytes() const;            // enough for every plan
  // `pointers`: inputs, then outputs, in the order in which they were declared; 16-byte aligned. A failure has cuDNN's
  // words, which last until the next one.
  Status execute(int plan, std::span<void* const> pointers, void* workspace, Stream stream);

 private:
  struct Replica;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace noisefloor::cudnn
