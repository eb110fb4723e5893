// A network as data: a static list of nodes (op, problem, tensors) in the order in which they run, and the values that
// they read and write. Nothing runs here; executors, arenas, problem lists and tests read the list.
#pragma once

#include <cmath>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/catalogue.h"

namespace noisefloor::networks {

// Where a weight comes from, and how its rows are laid out for our ops.
struct WeightSource {
  enum class Layout {
    plain,       // same order of elements (a 1x1 convolution is a matrix)
    ohwi,        // [cout, cin, kh, kw] to [cout, kh, kw, cin]
    transposed,  // [k, n] to [n, k]: an embedding table as the weight of a product with one-hot labels; and [cin, cout,
                 // kh, kw] of a transposed convolution to [cout, kh, kw, cin]
    hd3_to_3hd,  // rows of a projection: channel-wise q, k, v (EDM) to all q, all k, all v
  };
  std::string name;                // in the checkpoint
  std::vector<std::int64_t> file;  // shape in the checkpoint
  Layout layout = Layout::plain;
  std::int64_t rows = 0;  // the first ones of the first dimension; 0: all
  // Further tensors, of that shape but for their own number of rows, which stand below: projections of one input as one
  // product.
  struct Below {
    std::string name;
    std::int64_t rows;
    friend bool operator==(const Below&, const Below&) = default;
  };
  std::vector<Below> below = {};

  // What is blended with something else comes with its share of the blend: all numbers times sigmoid(m), or with `rest`
  // times 1 - sigmoid(m), of a tensor m [1].
  struct Share {
    std::string of;
    bool rest = false;
    double at(double m) const { return 1 / (1 + std::exp(rest ? m : -m)); }
    friend bool operator==(const Share&, const Share&) = default;
  };
  std::optional<Share> share = {};
  bool sigmoid = false;  // of each number: such a share itself
  double times = 1;      // all numbers
  // Another tensor of the same shape, whose numbers are added: the biases of two products of one sum.
  std::string plus = {};

  friend bool operator==(const WeightSource&, const WeightSource&) = default;
  // All rows of the tensors, those of a part that is not wanted included.
  std::int64_t all_rows() const;
  std::vector<Below> tensors() const;  // all of them, in the order of their rows
};

struct Value {
  enum class Kind {
    input,
    weight,
    unread,    // of no node: a tensor of the checkpoint, or a constant
    constant,  // 0, 1, ..., period - 1, over and over
    activation,
    state  // lives from run to run, and nodes write it: what is trained. Zero at first
  };
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::fp32;
  Kind kind = Kind::activation;
  std::optional<WeightSource> source;  // of a weight, also one that is not read; of a part of a state, what fills it
  std::int64_t period = 0;             // of a constant
  // An activation or state that is a part of another one, from its element `first` on: it has no memory of its own.
  // Each call of a loop takes the part `a_call` elements behind that of the call before, 0: the same.
  struct Part {
    std::size_t of;
    std::int64_t first;
    std::int64_t a_call = 0;
    std::int64_t first_of(std::size_t call) const { return first + static_cast<std::int64_t>(call) * a_call; }
  };
  std::optional<Part> part = {};

  std::int64_t elements() const;
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(dtype); }
};

using ValueId = std::size_t;
using Bindings = std::map<std::string, ValueId>;  // values by the names of an op's tensors

struct Node {
  std::string name;  // where it stands in the network: "input_blocks.1.0.in_layers"
  const Op* op = nullptr;
  AnyProblem problem;
  std::string text;  // canonical
  DType dtype = DType::fp32;
  std::vector<ValueId> values;  // in the order of op->tensors

  // The same with what the op says of them.
  struct Tensor {
    std::string name;
    Role role;
    ValueId value;
  };
  std::vector<Tensor> tensors() const;
  ValueId value(std::string_view tensor) const;  // throws std::logic_error where the op has none of that name
};

class Graph {
 public:
  ValueId input(std::string name, std::vector<std::int64_t> shape, DType dtype);
  // One value per distinct (source, dtype), however often it is asked for.
  ValueId weight(WeightSource source, std::vector<std::int64_t> shape, DType dtype);
  // Tensors that the checkpoint has and nothing here reads: known, so that they are neither missing nor too many.
  void leave_unread(std::string name, std::vector<std::int64_t> shape, DType dtype = DType::fp32);
  ValueId constant(std::string name, std::vector<std::int64_t> shape, DType dtype, std::int64_t period);
  ValueId state(std::string name, std::vector<std::int64_t> shape, DType dtype);
  // Elements of an activation or a state, from `first` on, and in each call of a loop `a_call` further. What is a part
  // itself is the same in each.
  ValueId part(ValueId of, std::string name, std::int64_t first, std::vector<std::int64_t> shape,
               std::int64_t a_call = 0);
  // A part of a state that holds a weight.
  ValueId weight_part(ValueId of, WeightSource source, std::int64_t first, std::vector<std::int64_t> shape);
  // Of an activation whose rows are those of so many calls of a loop, one behind the other, the rows of the call that
  // runs; 0: all.
  ValueId of_the_call(ValueId of, std::int64_t calls);
  // A node, and values for its outputs. `inputs` binds the op's input tensors by their names; sizes and dtypes must
  // agree. Throws std::logic_error naming the node when they do not: that is a mistake in a network's builder. Throws
  // InvalidInput naming the node where the op refuses the problem: the batch is too large. Returns the outputs in the
  // op's order; those in `outputs` are written where the value of that id lies.
  std::vector<ValueId> add(std::string name, std::string_view op, const std::string& problem, DType dtype,
                           const Bindings& inputs, const Bindings& outputs = {});

  const std::vector<Value>& values() const { return values_; }
  const std::deque<Node>& nodes() const { return nodes_; }  // which stay where they are in memory
  const Value& operator[](ValueId id) const { return values_.at(id); }
  // The value whose memory it lies in: itself, unless it is a part.
  ValueId whole(ValueId id) const { return values_.at(id).part ? values_.at(id).part->of : id; }

 private:
  friend class Rewrite;  // who changes a graph that stands

  std::vector<Value> values_;
  std::deque<Node> nodes_;
  std::map<std::string, ValueId> weights_;
};

// Names of all tensors that a checkpoint of the graph's weights has, with their shapes there.
std::map<std::string, std::vector<std::int64_t>, std::less<>> checkpoint_of(const Graph& graph);

// How often the graph has each distinct problem, in the order met.
struct CountedProblem {
  const Op* op;
  std::string text;
  DType dtype;
  long count;
  // A bit for each tensor that is one in every node of the problem (lifetimes.h, weights_of).
  std::uint64_t weights = 0;
  bool written_weights = false;  // in some node (reads_written_weights)
};
std::vector<CountedProblem> count_problems(const Graph& graph);
void add_to(std::vector<CountedProblem>& counted, const CountedProblem& one);

// The same where nothing is fused, with every node taken apart: projections of one product are products, what a
// product, convolution or norm has before or behind it is a problem of elementwise or resample where those have it,
// attention takes separate tensors, and along frames short sequences. A convolution of one tap is a product, a blend a
// sum. Copies of rows, and back from channels-first, are not counted. What the builder computes once, or not at all,
// stays so, but in `original`.
std::vector<CountedProblem> count_unfused(const Graph& graph);

}  // namespace noisefloor::networks
