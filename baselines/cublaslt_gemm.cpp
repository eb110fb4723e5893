// gemm by cuBLASLt, given its best: every algorithm that its heuristics offer under several limits, and split-K beyond
// them, timed on the caller's tensors.
//
// cuBLASLt is column-major, so D[m,n] = A B^T is computed as D^T = op(B) op(A): no data moves. B is transposed in
// layout nt, A in tn. Its epilogues cover bias, tanh-GELU and bias + tanh-GELU; a residual is its C matrix with beta =
// 1, which cuBLASLt adds before the activation, so only act=none may have one. Parts of D are a batch that shares A.
// What its epilogues lack is refused, not patched with kernels of ours under its name. Sums are fp32 for bf16 and fp16;
// fp32 is fp32 throughout (CUBLAS_COMPUTE_32F, no TF32, no emulation).

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "baselines/baseline.h"
#include "baselines/cublaslt_api.h"
#include "baselines/search.h"
#include "kernels/gemm/gemm.h"

namespace noisefloor::cublaslt {
namespace {

using gemm::Activation;
using gemm::Problem;

constexpr std::size_t kWorkspaceBytes = std::size_t{64} << 20;
// Heuristics change their mind with the workspace they are told of: split-K needs m * n * splits floats.
constexpr std::uint64_t kWorkspaceLimits[] = {0, std::uint64_t{4} << 20, std::uint64_t{32} << 20, kWorkspaceBytes};
constexpr int kHeuristicsPerLimit = 128;
constexpr std::size_t kSplitKSeeds = 4;
constexpr std::int32_t kSplits[] = {2, 3, 4, 5, 6, 8, 12, 16};
constexpr std::uintptr_t kBestAlignment = 256;  // what cudaMalloc gives, and cuBLASLt's default assumption

Support can_run(const AnyProblem& any, DType dtype) {
  const auto& problem = any.as<Problem>();
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max();
  if (problem.m > kLimit || problem.n > kLimit || problem.k > kLimit)
    return unsupported("extents must be below 2^31 for cuBLASLt");
  if (problem.act == Activation::silu) return unsupported("cuBLASLt has no SiLU epilogue");
  if (problem.act == Activation::gelu)
    return unsupported("cuBLASLt's GELU epilogue is the tanh form; this problem asks for erf");
  if (problem.act == Activation::geglu) return unsupported("cuBLASLt has no gated epilogue");
  if (problem.image_shift) return unsupported("cuBLASLt's epilogues add a bias to all rows, no per-image bias");
  if (problem.blend)
    return unsupported("cuBLASLt's epilogues add one matrix; this problem blends its sum with another");
  if (problem.row_sums) return unsupported("this baseline takes cuBLASLt's product alone, without sums of A's rows");
  if ((problem.bias || problem.residual) && problem.output_dtype(dtype) != dtype)
    return unsupported("cuBLASLt adds what is of D's type; this problem's bias and residual are of A's");
  if (problem.residual && problem.act != Activation::none)
    return unsupported("cuBLASLt adds its C matrix before the activation; this problem adds the residual after it");
  return supported();
}

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return CUDA_R_32F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::fp16:
      return CUDA_R_16F;
    default:
      throw LibraryRefused(std::string("cuBLASLt gemm takes bf16, fp16 and fp32, not ") + to_string(dtype));
  }
}

// cuBLASLt's handles, destroyed with the run.
template <class Handle>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, cublasStatus_t (*)(Handle)>;

class Run final : public BaselineRun {
 public:
  Run(const Problem& problem, DType dtype, const Algorithms& earlier)
      : problem_(problem),
        dtype_(dtype),
        lt_(api()),
        alpha_(static_cast<float>(problem.scale)),
        reductions_(dtype == DType::fp32 ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) {
    cublasLtHandle_t handle = nullptr;
    require(lt_.create(&handle), "cublasLtCreate");
    handle_ = {handle, lt_.destroy};

    cublasLtMatmulDesc_t desc = nullptr;
    require(lt_.desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    desc_ = {desc, lt_.desc_destroy};
    const bool b_transposed = problem.layout == gemm::Layout::nt, a_transposed = problem.layout == gemm::Layout::tn;
    set(CUBLASLT_MATMUL_DESC_TRANSA, b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue());

    const cudaDataType_t type = data_type(dtype);
    const auto m = static_cast<std::uint64_t>(problem.m);
    const auto n = static_cast<std::uint64_t>(problem.part());
    const auto k = static_cast<std::uint64_t>(problem.k);
    b_ = b_transposed ? layout(type, k, n, k * n) : layout(type, n, k, k * n);
    a_ = a_transposed ? layout(type, m, k, 0) : layout(type, k, m, 0);
    d_ = layout(data_type(problem.output_dtype(dtype)), n, m, n * m);
    if (problem.bias && problem.part_columns > 0) set(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, problem.part_columns);
    if (heuristics(kBestAlignment).empty())
      throw LibraryRefused("cuBLASLt's heuristics offer no algorithm for this problem");
    if (!earlier.empty()) repeat(earlier);
  }

  std::size_t workspace_bytes() const override { return kWorkspaceBytes; }

  Status tune(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context,
              Ranker& ranker) override {
    const auto tensors = gemm::definition.bind(problem_, pointers);
    alignment_ = alignment_of(tensors);
    candidates_ = heuristics(alignment_);
    const auto try_candidate = [&](int i) {
      return matmul(candidates_[static_cast<std::size_t>(i)].algo, tensors, scratch.workspace, context.stream);
    };
    const std::size_t offered = candidates_.size();
    const Ranking ranking = ranker.rank(Caches::cold, static_cast<int>(offered), try_candidate);
    if (!ranking.status.ok()) return ranking.status;

    // More splits than the heuristics thought of, around the winners and their own favourites.
    for (std::size_t i = 0; i < std::min(kSplitKSeeds, offered); ++i) add_splits(candidates_[i], candidates_);
    for (std::size_t i = 0; i < std::min(kSplitKSeeds, ranking.fastest.size()); ++i)
      add_splits(candidates_[static_cast<std::size_t>(ranking.fastest[i].index)], candidates_);
    // Some of cuBLASLt's kernels for unaligned problems with a residual round more than once.
    const Found found = search(ranker, static_cast<int>(candidates_.size()), try_candidate, try_candidate);
    if (!found.status.ok()) return found.status;
    for (const Caches caches : {Caches::cold, Caches::warm})
      chosen_.of(caches) = candidates_[static_cast<std::size_t>(found.algorithm.of(caches))].algo;
    tuned_ = true;
    tally_ = found.tally + "; " + std::to_string(offered) + " offered, " +
             std::to_string(candidates_.size() - offered) + " more with splits of k";
    return success();
  }

  Status launch(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context,
                Caches caches) override {
    if (!tuned_) return failure(StatusCode::invalid_argument, "launch before tune");
    const auto tensors = gemm::definition.bind(problem_, pointers);
    if (alignment_of(tensors) < alignment_)
      return failure(StatusCode::invalid_argument, "tensors are less aligned than those it was tuned on");
    return matmul(chosen_.of(caches), tensors, scratch.workspace, context.stream);
  }

  std::string description() const override {
    return "cuBLASLt " + names_of({name_of(chosen_.cold), name_of(chosen_.warm)}) + "; " + tally_;
  }
  // The algorithms' words, which cuBLASLt promises to take back in the same version, and the alignment.
  Algorithms algorithms() const override {
    Algorithms words;
    for (const Caches caches : {Caches::cold, Caches::warm})
      for (const std::uint64_t word : chosen_.of(caches).data) words.push_back(std::to_string(word));
    words.push_back(std::to_string(alignment_));
    return words;
  }

 private:
  cublasLtEpilogue_t epilogue() const {
    if (problem_.act == Activation::gelu_tanh)
      return problem_.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    return problem_.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  }

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    require(lt_.desc_set(desc_.get(), attribute, &value, sizeof(value)), "cublasLtMatmulDescSetAttribute");
  }

  // One matrix for each part of D, `stride` elements apart.
  Owned<cublasLtMatrixLayout_t> layout(cudaDataType_t type, std::uint64_t rows, std::uint64_t columns,
                                       std::uint64_t stride) const {
    cublasLtMatrixLayout_t raw = nullptr;
    require(lt_.layout_create(&raw, type, rows, columns, static_cast<std::int64_t>(rows)),
            "cublasLtMatrixLayoutCreate");
    Owned<cublasLtMatrixLayout_t> made{raw, lt_.layout_destroy};
    if (problem_.part_columns == 0) return made;
    const auto count = static_cast<std::int32_t>(problem_.parts());
    const auto apart = static_cast<std::int64_t>(stride);
    require(lt_.layout_set(raw, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)),
            "cublasLtMatrixLayoutSetAttribute");
    require(lt_.layout_set(raw, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &apart, sizeof(apart)),
            "cublasLtMatrixLayoutSetAttribute");
    return made;
  }

  static std::uintptr_t alignment_of(const gemm::Tensors& tensors) {
    std::uintptr_t bits = kBestAlignment;
    for (const void* pointer :
         {tensors.a, tensors.b, tensors.bias, tensors.residual, static_cast<const void*>(tensors.d)})
      bits |= reinterpret_cast<std::uintptr_t>(pointer);
    return bits & (~bits + 1);
  }

  // Every distinct algorithm that the heuristics offer, their favourites first.
  std::vector<cublasLtMatmulHeuristicResult_t> heuristics(std::uintptr_t alignment) const {
    std::vector<cublasLtMatmulHeuristicResult_t> found;
    for (const std::uint64_t limit : kWorkspaceLimits) {
      cublasLtMatmulPreference_t raw = nullptr;
      require(lt_.preference_create(&raw), "cublasLtMatmulPreferenceCreate");
      const Owned<cublasLtMatmulPreference_t> preference(raw, lt_.preference_destroy);
      const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
        require(lt_.preference_set(raw, attribute, &value, sizeof(value)), "cublasLtMatmulPreferenceSetAttribute");
      };
      prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, limit);
      prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions_);
      for (const auto attribute :
           {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
        prefer(attribute, static_cast<std::uint32_t>(alignment));
      std::vector<cublasLtMatmulHeuristicResult_t> results(kHeuristicsPerLimit);
      int count = 0;
      const cublasStatus_t status = lt_.heuristic(handle_.get(), desc_.get(), b_.get(), a_.get(), d_.get(), d_.get(),
                                                  raw, kHeuristicsPerLimit, results.data(), &count);
      if (status == CUBLAS_STATUS_NOT_SUPPORTED) continue;  // none within this limit
      require(status, "cublasLtMatmulAlgoGetHeuristic");
      for (int i = 0; i < count; ++i) {
        const auto& result = results[static_cast<std::size_t>(i)];
        if (result.state == CUBLAS_STATUS_SUCCESS) add(result, found);
      }
    }
    return found;
  }

  static void add(const cublasLtMatmulHeuristicResult_t& result, std::vector<cublasLtMatmulHeuristicResult_t>& found) {
    const auto same = [&](const auto& other) {
      return std::memcmp(&other.algo, &result.algo, sizeof(result.algo)) == 0;
    };
    if (std::none_of(found.begin(), found.end(), same)) found.push_back(result);
  }

  // `seed` with each number of splits and each way to reduce them that cuBLASLt accepts for this problem. By value:
  // `out` grows.
  void add_splits(const cublasLtMatmulHeuristicResult_t seed, std::vector<cublasLtMatmulHeuristicResult_t>& out) const {
    for (const std::int32_t splits : kSplits) {
      for (const std::uint32_t scheme : {CUBLASLT_REDUCTION_SCHEME_INPLACE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}) {
        if ((scheme & reductions_) == 0) continue;
        cublasLtMatmulAlgo_t algo = seed.algo;
        if (lt_.config_set(&algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits, sizeof(splits)) != CUBLAS_STATUS_SUCCESS)
          continue;
        if (lt_.config_set(&algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof(scheme)) !=
            CUBLAS_STATUS_SUCCESS)
          continue;
        cublasLtMatmulHeuristicResult_t checked{};
        const cublasStatus_t status =
            lt_.algo_check(handle_.get(), desc_.get(), b_.get(), a_.get(), d_.get(), d_.get(), &algo, &checked);
        if (status != CUBLAS_STATUS_SUCCESS || checked.workspaceSize > kWorkspaceBytes) continue;
        checked.algo = algo;
        add(checked, out);
      }
    }
  }

  Status matmul(const cublasLtMatmulAlgo_t& algo, const gemm::Tensors& tensors, void* workspace, Stream stream) {
    if (problem_.bias && tensors.bias != bias_pointer_) {
      const void* bias = tensors.bias;
      if (lt_.desc_set(desc_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)) != CUBLAS_STATUS_SUCCESS)
        return failure(StatusCode::invalid_argument, "cublasLtMatmulDescSetAttribute");
      bias_pointer_ = bias;
    }
    const float beta = problem_.residual ? 1.0f : 0.0f;
    const void* c = problem_.residual ? tensors.residual : tensors.d;
    const cublasStatus_t status =
        lt_.matmul(handle_.get(), desc_.get(), &alpha_, tensors.b, b_.get(), tensors.a, a_.get(), &beta, c, d_.get(),
                   tensors.d, d_.get(), &algo, workspace, kWorkspaceBytes, stream);
    if (status == CUBLAS_STATUS_SUCCESS) return success();
    const bool refused = status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
    return failure(refused ? StatusCode::unsupported_problem : StatusCode::cuda_error, lt_.status_string(status));
  }

  template <class Value>
  Value config(const cublasLtMatmulAlgo_t& algo, cublasLtMatmulAlgoConfigAttributes_t attribute) const {
    Value value{};
    std::size_t written = 0;
    require(lt_.config_get(&algo, attribute, &value, sizeof(value), &written), "cublasLtMatmulAlgoConfigGetAttribute");
    return value;
  }

  std::string name_of(const cublasLtMatmulAlgo_t& algo) const {
    return "algorithm " + std::to_string(config<std::int32_t>(algo, CUBLASLT_ALGO_CONFIG_ID)) + " tile " +
           std::to_string(config<std::uint32_t>(algo, CUBLASLT_ALGO_CONFIG_TILE_ID)) + " stages " +
           std::to_string(config<std::uint32_t>(algo, CUBLASLT_ALGO_CONFIG_STAGES_ID)) + " cluster " +
           std::to_string(config<std::uint16_t>(algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID)) + " split-K " +
           std::to_string(config<std::int32_t>(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM));
  }

  // Throws LibraryRefused where cuBLASLt does not take the words of algorithms() for this problem.
  void repeat(const Algorithms& words) {
    constexpr std::size_t kWords = std::size(decltype(cublasLtMatmulAlgo_t::data){});
    if (words.size() != 2 * kWords + 1) throw LibraryRefused("an earlier choice is not one of cuBLASLt's");
    if (problem_.bias) {  // the check wants an address; matmul() sets the tensor's
      alignas(kBestAlignment) static const char place = 0;
      const void* any = &place;
      require(lt_.desc_set(desc_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, &any, sizeof(any)),
              "cublasLtMatmulDescSetAttribute");
    }
    auto word = words.begin();
    for (const Caches caches : {Caches::cold, Caches::warm}) {
      for (std::uint64_t& part : chosen_.of(caches).data) part = number_of(*word++);
      cublasLtMatmulHeuristicResult_t checked{};
      require(lt_.algo_check(handle_.get(), desc_.get(), b_.get(), a_.get(), d_.get(), d_.get(), &chosen_.of(caches),
                             &checked),
              "cublasLtMatmulAlgoCheck of an earlier choice");
      if (checked.workspaceSize > kWorkspaceBytes) throw LibraryRefused("an earlier choice needs more workspace");
    }
    alignment_ = number_of(*word);
    tuned_ = true;
  }

  static std::uint64_t number_of(const std::string& text) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      throw LibraryRefused("an earlier choice is not one of cuBLASLt's");
    return value;
  }

  Problem problem_;
  DType dtype_;
  const Api& lt_;
  float alpha_;
  std::uint32_t reductions_;  // the schemes of split-K that may be used
  Owned<cublasLtHandle_t> handle_{nullptr, nullptr};
  Owned<cublasLtMatmulDesc_t> desc_{nullptr, nullptr};
  Owned<cublasLtMatrixLayout_t> a_{nullptr, nullptr};
  Owned<cublasLtMatrixLayout_t> b_{nullptr, nullptr};
  Owned<cublasLtMatrixLayout_t> d_{nullptr, nullptr};
  std::vector<cublasLtMatmulHeuristicResult_t> candidates_;
  ColdWarm<cublasLtMatmulAlgo_t> chosen_{};
  const void* bias_pointer_ = nullptr;
  std::uintptr_t alignment_ = 0;
  bool tuned_ = false;
  std::string tally_;
};

std::unique_ptr<BaselineRun> create(const AnyProblem& problem, DType dtype, const DeviceInfo&,
                                    const Algorithms& earlier) {
  return std::make_unique<Run>(problem.as<Problem>(), dtype, earlier);
}

}  // namespace

long version() {
  return static_cast<long>(api().version());
}

Baseline gemm_baseline() {
  return {"gemm", "cublaslt", can_run, create, version};
}

}  // namespace noisefloor::cublaslt
