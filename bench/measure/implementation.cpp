#include "bench/measure/implementation.h"

#include <fmt/format.h>

#include "bench/platform/build_info.h"

namespace noisefloor {
namespace {

class ReadyVariant final : public Ready {
 public:
  ReadyVariant(const AnyVariant& variant, Platform& platform, AnyProblem problem, DType dtype)
      : variant_(&variant),
        problem_(std::move(problem)),
        dtype_(dtype),
        workspace_bytes_(variant.workspace_bytes(problem_, dtype, platform.description().info)) {}

  std::size_t workspace_bytes() const override { return workspace_bytes_; }
  std::size_t prepared_bytes() const override { return variant_->prepared_bytes(problem_, dtype_); }
  void prepare(std::span<void* const> pointers, void* prepared, const LaunchContext& context) override {
    throw_if_failed(variant_->prepare(problem_, dtype_, pointers, prepared, context));
  }
  Status launch(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context) override {
    return variant_->launch(problem_, dtype_, pointers, scratch, context);
  }

 private:
  const AnyVariant* variant_;
  AnyProblem problem_;
  DType dtype_;
  std::size_t workspace_bytes_;
};

class VariantImplementation final : public Implementation {
 public:
  explicit VariantImplementation(const AnyVariant& variant) : variant_(&variant) {
    name = variant.name;
    kind = to_string(variant.kind);
    arch = variant.arch;
    on_host = variant.kind == Kind::host;
    on_gpu = !on_host;
    built = variant.built;
    if (variant.not_written)
      why_not_built = why_not_written(variant);
    else if (!built)
      why_not_built = fmt::format("needs {}; this build has {}", to_string(arch), build_info().cuda_architectures);
  }
  Support can_run(const AnyProblem& problem, DType dtype) const override { return variant_->can_run(problem, dtype); }
  std::unique_ptr<Ready> make(Platform& platform, const AnyProblem& problem, DType dtype, KnownTimes&) const override {
    return std::make_unique<ReadyVariant>(*variant_, platform, problem, dtype);
  }
  const AnyVariant* variant() const override { return variant_; }

 private:
  const AnyVariant* variant_;
};

// Where a baseline's search keeps what it found.
struct SearchPlace {
  std::shared_ptr<SearchCache> cache;
  SearchCache::Key key;
};

class ReadyBaseline final : public Ready {
 public:
  // `earlier`: the search that `run` repeats.
  ReadyBaseline(std::unique_ptr<BaselineRun> run, SearchPlace place, std::optional<KeptSearch> earlier)
      : run_(std::move(run)), place_(std::move(place)), earlier_(std::move(earlier)) {}

  std::size_t workspace_bytes() const override { return run_->workspace_bytes(); }
  std::size_t prepared_bytes() const override { return run_->prepared_bytes(); }
  void prepare(std::span<void* const> pointers, void* prepared, const LaunchContext& context) override {
    throw_if_failed(run_->prepare(pointers, prepared, context));
  }
  bool needs_tuning() const override { return !tuned_; }
  void tune(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context,
            Ranker& ranker) override {
    if (earlier_) {
      check_earlier(pointers, scratch, context, ranker);
    } else {
      try {
        const Status status = run_->tune(pointers, scratch, context, ranker);
        if (status.code == StatusCode::unsupported_problem) throw LibraryRefused(status.what);
        throw_if_failed(status);
      } catch (const DeviceError& error) {
        if (error.lost()) place_.cache->refuse(place_.key, error.what());
        throw;
      }
      place_.cache->keep(place_.key, {run_->algorithms(), run_->description()});
    }
    tuned_ = true;
  }
  void use(Caches caches) override { caches_ = caches; }
  // Libraries are not asked for programmatic launch (some use it by themselves); a kernel of ours that one of these
  // starts must not use it.
  Status launch(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context) override {
    LaunchContext ordinary = context;
    ordinary.programmatic_launch = false;
    return run_->launch(pointers, scratch, ordinary, caches_);
  }
  std::string description() const override {
    return earlier_ ? earlier_->description + "; cached" : run_->description();
  }
  bool overlaps() const override { return false; }

 private:
  void check_earlier(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context,
                     Ranker& ranker) {
    std::string why = "its result is wrong";
    bool lost = false;
    try {
      const auto right = [&](Caches caches) {
        return ranker.accurate([&] { return run_->launch(pointers, scratch, context, caches); });
      };
      if (right(Caches::cold) && right(Caches::warm)) return;
    } catch (const DeviceError& error) {
      why = error.what();
      lost = error.lost();
    }
    if (lost) {
      place_.cache->refuse(place_.key, why);
      throw DeviceError(why, lost);
    }
    place_.cache->forget(place_.key, why);
    throw StaleChoice(why);
  }

  std::unique_ptr<BaselineRun> run_;
  SearchPlace place_;
  std::optional<KeptSearch> earlier_;
  bool tuned_ = false;
  Caches caches_ = Caches::cold;
};

class BaselineImplementation final : public Implementation {
 public:
  BaselineImplementation(const Baseline& baseline, const Op& op, std::shared_ptr<SearchCache> searches)
      : baseline_(&baseline), op_(&op), searches_(std::move(searches)) {
    name = baseline.name;
    kind = to_string(Kind::baseline);
  }
  Support can_run(const AnyProblem& problem, DType dtype) const override { return baseline_->can_run(problem, dtype); }
  std::unique_ptr<Ready> make(Platform& platform, const AnyProblem& problem, DType dtype, KnownTimes&) const override {
    const DeviceInfo& device = platform.description().info;
    const long version = baseline_->version != nullptr ? baseline_->version() : 0;
    const SearchPlace place{searches_ && baseline_->version != nullptr
                                ? searches_
                                : std::make_shared<SearchCache>(std::filesystem::path(), [](const std::string&) {}),
                            {platform.description().name,
                             std::to_string(version),
                             {{op_->name, op_->print(problem), to_string(dtype)}, name}}};
    if (auto earlier = place.cache->find(place.key)) {
      if (!earlier->lost.empty())
        throw LibraryRefused(
            "it lost the device when it was searched, and is not tried again without --search-again: " + earlier->lost);
      try {
        auto run = baseline_->create(problem, dtype, device, earlier->algorithms);
        return std::make_unique<ReadyBaseline>(std::move(run), place, std::move(earlier));
      } catch (const LibraryRefused& refused) {
        place.cache->forget(place.key, refused.what());
      }
    }
    return std::make_unique<ReadyBaseline>(baseline_->create(problem, dtype, device, {}), place, std::nullopt);
  }

 private:
  const Baseline* baseline_;
  const Op* op_;
  std::shared_ptr<SearchCache> searches_;
};

class WorkerImplementation final : public Implementation {
 public:
  explicit WorkerImplementation(const std::string& its_name) {
    name = its_name;
    kind = to_string(Kind::baseline);
    in_worker = true;
  }
  WorkerImplementation(std::shared_ptr<Worker> its_worker, const std::string& its_plugin, const std::string& its_name,
                       Kind its_kind, Arch its_arch) {
    name = its_name;
    kind = to_string(its_kind);
    arch = its_arch;
    on_host = arch == Arch::host;
    on_gpu = !on_host;
    plugin = its_plugin;
    worker = std::move(its_worker);
  }
  std::unique_ptr<Ready> make(Platform&, const AnyProblem&, DType, KnownTimes&) const override {
    throw LibraryRefused(name + " runs in a program of its own, which a sweep asks: it cannot be launched here");
  }
};

}  // namespace

KnownTimes::Entry KnownTimes::add(const SweepRow& row) {
  if (row.status == Outcome::ok) {
    if (!row.time_warm_us) return {std::nullopt, "no warm time was taken"};
    return entries_[row] = {row.time_warm_us, {}, row.prepare_us.has_value()};
  }
  const Entry entry{std::nullopt, std::string(to_string(row.status)) + ": " + row.reason};
  if (row.status != Outcome::throttled) entries_[row] = entry;
  return entry;
}

const KnownTimes::Entry* KnownTimes::find(const CaseId& id) const {
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second;
}

ImplementationPtr implementation_in_worker(const std::string& name) {
  return std::make_shared<WorkerImplementation>(name);
}

ImplementationPtr implementation_of_plugin(std::shared_ptr<Worker> worker, const std::string& plugin,
                                           const std::string& name, Kind kind, Arch arch) {
  return std::make_shared<WorkerImplementation>(std::move(worker), plugin, name, kind, arch);
}

ImplementationPtr implementation_of(const AnyVariant& variant) {
  return std::make_shared<VariantImplementation>(variant);
}

ImplementationPtr implementation_of(const Baseline& baseline, const Op& op, std::shared_ptr<SearchCache> searches) {
  return std::make_shared<BaselineImplementation>(baseline, op, std::move(searches));
}

}  // namespace noisefloor
