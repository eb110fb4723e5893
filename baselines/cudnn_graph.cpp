#include "baselines/cudnn_graph.h"

#include <cudnn_frontend.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>

#include "baselines/baseline.h"
#include "kernels/core/dynamic_library.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // cudnn-frontend resolves cuDNN's functions through it
}

#define NOISEFLOOR_TEXT(macro) NOISEFLOOR_TEXT_(macro)
#define NOISEFLOOR_TEXT_(text) #text

namespace noisefloor::cudnn {
namespace {

namespace fe = cudnn_frontend;
using Node = std::shared_ptr<fe::graph::Tensor_attributes>;

void require(fe::error_t error, const char* call) {  // by value: its message is read by a non-const member
  if (error.is_bad()) throw LibraryRefused(std::string("cuDNN ") + call + ": " + error.get_message());
}

fe::DataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return fe::DataType_t::FLOAT;
    case DType::bf16:
      return fe::DataType_t::BFLOAT16;
    case DType::fp16:
      return fe::DataType_t::HALF;
    default:
      throw LibraryRefused(std::string("cuDNN graphs here take bf16, fp16 and fp32, not ") + to_string(dtype));
  }
}

fe::PointwiseMode_t mode(Pointwise operation) {
  using Mode = fe::PointwiseMode_t;
  constexpr Mode kModes[] = {Mode::IDENTITY, Mode::ADD,      Mode::MUL,      Mode::MIN,
                             Mode::MAX,      Mode::RELU_FWD, Mode::SWISH_FWD};
  return kModes[static_cast<std::size_t>(operation)];
}

// cuDNN and the runtime that cudnn-frontend looks for, opened once.
void load_libraries() {
  static const bool loaded = [] {
    // cudnn-frontend opens the runtime by this name; opened here first, it is found wherever it is.
    const std::string runtime_name = "libcudart.so." + std::to_string(CUDART_VERSION / 1000);
    const DynamicLibrary runtime(runtime_name.c_str(), NOISEFLOOR_CUDA_LIBRARY_DIR);
    const DynamicLibrary cudnn("libcudnn.so." NOISEFLOOR_TEXT(CUDNN_MAJOR), NOISEFLOOR_CUDNN_LIBRARY_DIR);
    fe::cudnn_dlhandle = cudnn.handle();
    return true;
  }();
  static_cast<void>(loaded);
}

}  // namespace

long version() {
  load_libraries();
  return static_cast<long>(fe::detail::get_backend_version());
}

// One copy of the graph with a handle of its own: what a thread needs to build plans beside others.
struct Graph::Replica {
  fe::graph::Graph graph;
  cudnnHandle_t handle = nullptr;
  std::vector<Node> nodes;
  std::vector<Node> inputs;
  std::vector<Node> outputs;

  Replica() {
    const cudnnStatus_t status = fe::detail::create_handle(&handle);
    if (status != CUDNN_STATUS_SUCCESS) throw LibraryRefused("cudnnCreate: " + fe::detail::get_last_error_string_());
    graph.set_io_data_type(fe::DataType_t::FLOAT)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }
  ~Replica() { static_cast<void>(fe::detail::destroy_handle(handle)); }
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  Node at(int node) const { return nodes.at(static_cast<std::size_t>(node)); }
  int add(Node node) {
    nodes.push_back(std::move(node));
    return static_cast<int>(nodes.size()) - 1;
  }
};

struct Graph::State {
  struct Plan {
    Replica* replica;
    std::int64_t index;  // in the heuristics' order
    std::string name;
    std::int64_t workspace;
  };
  std::vector<std::function<int(Replica&)>> recipe;  // of every replica, in order
  std::vector<std::unique_ptr<Replica>> replicas;    // the first is there from the start
  std::vector<Plan> plans;
  std::size_t workspace = 0;
  int offered = 0, tried = 0;  // configurations
  std::string words;           // the last one's words, which a Status points to

  int apply(std::function<int(Replica&)> step) {
    recipe.push_back(std::move(step));
    return recipe.back()(*replicas.front());
  }
};

Graph::Graph() {
  load_libraries();
  state_ = std::make_unique<State>();
  state_->replicas.push_back(std::make_unique<Replica>());
}

Graph::~Graph() = default;

int Graph::input(DType dtype, const Layout& layout) {
  return state_->apply([=, type = data_type(dtype)](Replica& r) {
    const Node node = r.graph.tensor(
        fe::graph::Tensor_attributes().set_data_type(type).set_dim(layout.extents).set_stride(layout.strides));
    r.inputs.push_back(node);
    return r.add(node);
  });
}

int Graph::scalar(float value) {
  return state_->apply([=](Replica& r) { return r.add(r.graph.tensor(value)); });
}

int Graph::pointwise(Pointwise operation, int a) {
  return state_->apply([=](Replica& r) {
    return r.add(r.graph.pointwise(r.at(a), fe::graph::Pointwise_attributes().set_mode(mode(operation))));
  });
}

int Graph::pointwise(Pointwise operation, int a, int b) {
  return state_->apply([=](Replica& r) {
    return r.add(r.graph.pointwise(r.at(a), r.at(b), fe::graph::Pointwise_attributes().set_mode(mode(operation))));
  });
}

Graph::Attention Graph::attention(int q, int k, int v, float scale, bool lse) {
  const int out = state_->apply([=](Replica& r) {
    const auto attributes = fe::graph::SDPA_attributes().set_generate_stats(lse).set_attn_scale(scale);
    const auto [result, stats] = r.graph.sdpa(r.at(q), r.at(k), r.at(v), attributes);
    const int node = r.add(result);
    if (lse) r.add(stats);
    return node;
  });
  return {out, lse ? out + 1 : -1};
}

int Graph::convolution(int x, int w, const ConvolutionPlace& place) {
  return state_->apply([=](Replica& r) {
    const auto attributes =
        fe::graph::Conv_fprop_attributes().set_padding(place.pad).set_stride(place.stride).set_dilation({1, 1});
    return r.add(r.graph.conv_fprop(r.at(x), r.at(w), attributes));
  });
}

int Graph::transposed_convolution(int dy, int w, const ConvolutionPlace& place,
                                  const std::vector<std::int64_t>& extents) {
  return state_->apply([=](Replica& r) {
    const auto attributes =
        fe::graph::Conv_dgrad_attributes().set_padding(place.pad).set_stride(place.stride).set_dilation({1, 1});
    const Node dx = r.graph.conv_dgrad(r.at(dy), r.at(w), attributes);
    dx->set_dim(extents);  // not to be inferred: with a stride, several extents have the same gradient
    return r.add(dx);
  });
}

int Graph::weight_gradient(int dy, int x, const ConvolutionPlace& place, const std::vector<std::int64_t>& extents) {
  return state_->apply([=](Replica& r) {
    const auto attributes =
        fe::graph::Conv_wgrad_attributes().set_padding(place.pad).set_stride(place.stride).set_dilation({1, 1});
    const Node dw = r.graph.conv_wgrad(r.at(dy), r.at(x), attributes);
    dw->set_dim(extents);  // not to be inferred: with a stride, several kernels fit
    return r.add(dw);
  });
}

int Graph::channel_sums(int x, std::int64_t channels) {
  return state_->apply([=](Replica& r) {
    const Node sums = r.graph.reduction(r.at(x), fe::graph::Reduction_attributes().set_mode(fe::ReductionMode_t::ADD));
    sums->set_dim({1, channels, 1, 1});
    return r.add(sums);
  });
}

void Graph::output(int node, DType dtype, const Layout& layout) {
  state_->apply([=, type = data_type(dtype)](Replica& r) {
    const Node tensor = r.at(node);
    tensor->set_output(true).set_data_type(type).set_dim(layout.extents).set_stride(layout.strides);
    r.outputs.push_back(tensor);
    return node;
  });
}

void Graph::build(double budget_seconds, const std::vector<std::string>& wanted) {
  const auto start = std::chrono::steady_clock::now();
  // An engine compiles its kernel in up to a second of one core, and cudnn-frontend builds the plans of one graph one
  // after the other.
  constexpr unsigned kMostThreads = 8;
  const unsigned threads = wanted.empty() ? std::clamp(std::thread::hardware_concurrency() / 2, 1u, kMostThreads) : 1;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) throw LibraryRefused("cudaGetDevice failed");
  while (state_->replicas.size() < threads) {
    state_->replicas.push_back(std::make_unique<Replica>());
    for (const auto& step : state_->recipe) static_cast<void>(step(*state_->replicas.back()));
  }
  std::mutex mutex;
  std::vector<State::Plan> built;
  std::string refusal = "no engine offered";
  const auto build_share = [&](unsigned first) {
    Replica& replica = *state_->replicas[first];
    auto& graph = replica.graph;
    if (cudaSetDevice(device) != cudaSuccess) throw LibraryRefused("cudaSetDevice failed");
    require(graph.validate(), "validate");
    require(graph.build_operation_graph(replica.handle), "build_operation_graph");
    require(graph.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::B, fe::HeurMode_t::FALLBACK}),
            "create_execution_plans");
    std::vector<std::string> names(static_cast<std::size_t>(graph.get_execution_plan_count()));
    for (std::size_t i = 0; i < names.size(); ++i)
      require(graph.get_plan_name_at_index(static_cast<std::int64_t>(i), names[i]), "get_plan_name");
    const std::set<std::string> distinct(names.begin(), names.end());     // the heuristics' modes overlap
    if (first == 0) state_->offered = static_cast<int>(distinct.size());  // all replicas are offered the same
    for (std::size_t i = first; i < names.size(); i += threads) {
      const auto place = static_cast<std::int64_t>(i);
      State::Plan plan{&replica, place, names[i], 0};
      const auto here = names.begin() + place;
      if (std::find(names.begin(), here, plan.name) != here) continue;
      if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), plan.name) == wanted.end()) continue;
      {
        const std::lock_guard lock(mutex);
        const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
        if (wanted.empty() && elapsed.count() > budget_seconds && !built.empty()) return;
        ++state_->tried;
      }
      auto error = graph.build_plan_at_index(place);
      if (error.is_good()) require(graph.get_workspace_size_plan_at_index(place, plan.workspace), "get_workspace_size");
      const std::lock_guard lock(mutex);
      if (error.is_good())
        built.push_back(std::move(plan));
      else
        refusal = error.get_message();
    }
  };
  std::vector<std::future<void>> shares;  // a thread each, or this one where there are no more
  for (unsigned share = 1; share < threads; ++share) shares.push_back(std::async(build_share, share));
  build_share(0);
  for (std::future<void>& share : shares) share.get();

  std::sort(built.begin(), built.end(), [](const auto& a, const auto& b) { return a.index < b.index; });
  for (State::Plan& plan : built) {
    state_->workspace = std::max(state_->workspace, static_cast<std::size_t>(plan.workspace));
    state_->plans.push_back(std::move(plan));
  }
  if (state_->plans.empty()) throw LibraryRefused("cuDNN has no engine for this graph: " + refusal);
  for (const std::string& name : wanted) static_cast<void>(plan_named(name));
}

std::string Graph::tally() const {
  std::string text = std::to_string(state_->offered) + " offered";
  if (const int cut = state_->offered - state_->tried; cut > 0)
    text += ", " + std::to_string(cut) + " of them not built for want of time";
  return text;
}

int Graph::plans() const {
  return static_cast<int>(state_->plans.size());
}

std::string Graph::plan_name(int plan) const {
  return state_->plans.at(static_cast<std::size_t>(plan)).name;
}

int Graph::plan_named(const std::string& name) const {
  for (int plan = 0; plan < plans(); ++plan)
    if (plan_name(plan) == name) return plan;
  throw LibraryRefused("cuDNN offers no plan " + name + " for this graph");
}

std::size_t Graph::workspace_bytes() const {
  return state_->workspace;
}

Status Graph::execute(int plan, std::span<void* const> pointers, void* workspace, Stream stream) {
  const State::Plan& chosen = state_->plans.at(static_cast<std::size_t>(plan));
  Replica& replica = *chosen.replica;
  if (pointers.size() != replica.inputs.size() + replica.outputs.size())
    return failure(StatusCode::invalid_argument, "cudnn::Graph::execute: one pointer per input and output");
  const auto failed = [&](const std::string& what) {
    state_->words = what;
    return failure(StatusCode::cuda_error, state_->words.c_str());
  };
  if (fe::detail::set_stream(replica.handle, stream) != CUDNN_STATUS_SUCCESS)
    return failed("cudnnSetStream: " + fe::detail::get_last_error_string_());
  std::unordered_map<std::int64_t, void*> pack;
  std::size_t next = 0;
  for (const auto* tensors : {&replica.inputs, &replica.outputs})
    for (const Node& tensor : *tensors) pack[tensor->get_uid()] = pointers[next++];
  auto error = replica.graph.execute_plan_at_index(replica.handle, pack, workspace, chosen.index);
  return error.is_good() ? success() : failed("cuDNN execute: " + error.get_message());
}

}  // namespace noisefloor::cudnn
