#include "baselines/cudnn_graph.h"

#include <cudnn_frontend.h>

#include <algorithm>
#include <chrono>
#include <unordered_map>

#include "baselines/baseline.h"
#include "baselines/dynamic_library.h"

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
  switch (operation) {
    case Pointwise::identity:
      return fe::PointwiseMode_t::IDENTITY;
    case Pointwise::add:
      return fe::PointwiseMode_t::ADD;
    case Pointwise::multiply:
      return fe::PointwiseMode_t::MUL;
    case Pointwise::minimum:
      return fe::PointwiseMode_t::MIN;
    case Pointwise::maximum:
      return fe::PointwiseMode_t::MAX;
    case Pointwise::relu:
      return fe::PointwiseMode_t::RELU_FWD;
    case Pointwise::swish:
      return fe::PointwiseMode_t::SWISH_FWD;
  }
  return fe::PointwiseMode_t::NOT_SET;
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

struct Graph::State {
  fe::graph::Graph graph;
  cudnnHandle_t handle = nullptr;
  std::vector<Node> nodes;
  std::vector<Node> inputs;
  std::vector<Node> outputs;
  std::vector<std::int64_t> usable;  // indices of the plans that were built
  std::size_t workspace = 0;

  Node at(int node) const { return nodes.at(static_cast<std::size_t>(node)); }
  int add(Node node) {
    nodes.push_back(std::move(node));
    return static_cast<int>(nodes.size()) - 1;
  }
};

Graph::Graph() {
  load_libraries();
  state_ = std::make_unique<State>();
  const cudnnStatus_t status = fe::detail::create_handle(&state_->handle);
  if (status != CUDNN_STATUS_SUCCESS) throw LibraryRefused("cudnnCreate: " + fe::detail::get_last_error_string_());
  state_->graph.set_io_data_type(fe::DataType_t::FLOAT)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
}

Graph::~Graph() {
  if (state_ != nullptr && state_->handle != nullptr) static_cast<void>(fe::detail::destroy_handle(state_->handle));
}

int Graph::input(DType dtype, const Layout& layout) {
  const Node node = state_->graph.tensor(fe::graph::Tensor_attributes()
                                             .set_data_type(data_type(dtype))
                                             .set_dim(layout.extents)
                                             .set_stride(layout.strides));
  state_->inputs.push_back(node);
  return state_->add(node);
}

int Graph::scalar(float value) {
  return state_->add(state_->graph.tensor(value));
}

int Graph::pointwise(Pointwise operation, int a) {
  const auto attributes = fe::graph::Pointwise_attributes().set_mode(mode(operation));
  return state_->add(state_->graph.pointwise(state_->at(a), attributes));
}

int Graph::pointwise(Pointwise operation, int a, int b) {
  const auto attributes = fe::graph::Pointwise_attributes().set_mode(mode(operation));
  return state_->add(state_->graph.pointwise(state_->at(a), state_->at(b), attributes));
}

Graph::Attention Graph::attention(int q, int k, int v, float scale, bool lse) {
  const auto attributes = fe::graph::SDPA_attributes().set_generate_stats(lse).set_attn_scale(scale);
  const auto [out, stats] = state_->graph.sdpa(state_->at(q), state_->at(k), state_->at(v), attributes);
  const int node = state_->add(out);
  return {node, lse ? state_->add(stats) : -1};
}

int Graph::convolution(int x, int w, const ConvolutionPlace& place) {
  const auto attributes =
      fe::graph::Conv_fprop_attributes().set_padding(place.pad).set_stride(place.stride).set_dilation({1, 1});
  return state_->add(state_->graph.conv_fprop(state_->at(x), state_->at(w), attributes));
}

int Graph::transposed_convolution(int dy, int w, const ConvolutionPlace& place,
                                  const std::vector<std::int64_t>& extents) {
  const auto attributes =
      fe::graph::Conv_dgrad_attributes().set_padding(place.pad).set_stride(place.stride).set_dilation({1, 1});
  const Node dx = state_->graph.conv_dgrad(state_->at(dy), state_->at(w), attributes);
  dx->set_dim(extents);  // not to be inferred: with a stride, several extents have the same gradient
  return state_->add(dx);
}

void Graph::output(int node, DType dtype, const Layout& layout) {
  const Node tensor = state_->at(node);
  tensor->set_output(true).set_data_type(data_type(dtype)).set_dim(layout.extents).set_stride(layout.strides);
  state_->outputs.push_back(tensor);
}

void Graph::build(double budget_seconds) {
  const auto start = std::chrono::steady_clock::now();
  auto& graph = state_->graph;
  require(graph.validate(), "validate");
  require(graph.build_operation_graph(state_->handle), "build_operation_graph");
  require(graph.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::B, fe::HeurMode_t::FALLBACK}),
          "create_execution_plans");
  std::string refusal = "no engine offered";
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < graph.get_execution_plan_count(); ++i) {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (elapsed.count() > budget_seconds && !state_->usable.empty()) break;
    if (auto error = graph.build_plan_at_index(i); error.is_bad()) {
      refusal = error.get_message();
      continue;
    }
    std::int64_t bytes = 0;
    require(graph.get_workspace_size_plan_at_index(i, bytes), "get_workspace_size");
    state_->usable.push_back(i);
    const std::string name = plan_name(plans() - 1);
    if (std::find(names.begin(), names.end(), name) != names.end()) {  // the modes overlap
      state_->usable.pop_back();
      continue;
    }
    names.push_back(name);
    state_->workspace = std::max(state_->workspace, static_cast<std::size_t>(bytes));
  }
  if (state_->usable.empty()) throw LibraryRefused("cuDNN has no engine for this graph: " + refusal);
}

int Graph::plans() const {
  return static_cast<int>(state_->usable.size());
}

std::string Graph::plan_name(int plan) const {
  std::string name;
  require(state_->graph.get_plan_name_at_index(state_->usable.at(static_cast<std::size_t>(plan)), name),
          "get_plan_name");
  return name;
}

std::size_t Graph::workspace_bytes() const {
  return state_->workspace;
}

Status Graph::execute(int plan, std::span<void* const> pointers, void* workspace, Stream stream) {
  if (pointers.size() != state_->inputs.size() + state_->outputs.size())
    return failure(StatusCode::invalid_argument, "cudnn::Graph::execute: one pointer per input and output");
  if (fe::detail::set_stream(state_->handle, stream) != CUDNN_STATUS_SUCCESS)
    return failure(StatusCode::cuda_error, "cudnnSetStream");
  std::unordered_map<std::int64_t, void*> pack;
  std::size_t next = 0;
  for (const auto* tensors : {&state_->inputs, &state_->outputs})
    for (const Node& tensor : *tensors) pack[tensor->get_uid()] = pointers[next++];
  const auto error = state_->graph.execute_plan_at_index(state_->handle, pack, workspace,
                                                         state_->usable[static_cast<std::size_t>(plan)]);
  return error.is_good() ? success() : failure(StatusCode::cuda_error, "cudnnBackendExecute");
}

}  // namespace noisefloor::cudnn
