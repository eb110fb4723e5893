#include "baselines/baseline.h"
#include "baselines/cudnn_graph.h"

namespace noisefloor::cudnn {

struct Graph::State {};

namespace {
[[noreturn]] void missing() {
  throw LibraryMissing(
      "this build has no cuDNN: its headers or those of cudnn-frontend were not found at configure time");
}
}  // namespace

long version() {
  missing();
}

Graph::Graph() {
  missing();
}
Graph::~Graph() = default;
int Graph::input(DType, const Layout&) {
  missing();
}
int Graph::scalar(float) {
  missing();
}
int Graph::pointwise(Pointwise, int) {
  missing();
}
int Graph::pointwise(Pointwise, int, int) {
  missing();
}
Graph::Attention Graph::attention(int, int, int, float, bool) {
  missing();
}
int Graph::convolution(int, int, const ConvolutionPlace&) {
  missing();
}
int Graph::transposed_convolution(int, int, const ConvolutionPlace&, const std::vector<std::int64_t>&) {
  missing();
}
void Graph::output(int, DType, const Layout&) {
  missing();
}
void Graph::build(double, const std::vector<std::string>&) {
  missing();
}
int Graph::plans() const {
  missing();
}
std::string Graph::tally() const {
  missing();
}
std::string Graph::plan_name(int) const {
  missing();
}
int Graph::plan_named(const std::string&) const {
  missing();
}
std::size_t Graph::workspace_bytes() const {
  missing();
}
Status Graph::execute(int, std::span<void* const>, void*, Stream) {
  missing();
}

}  // namespace noisefloor::cudnn
