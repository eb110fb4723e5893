#include <fmt/format.h>

#include <charconv>

#include "bench/plugin/plugin_library.h"

namespace noisefloor {
namespace {

static_assert(static_cast<int>(DType::bf16) == NOISEFLOOR_BF16 && static_cast<int>(DType::uint8) == NOISEFLOOR_UINT8);
static_assert(static_cast<int>(Role::inout) == NOISEFLOOR_INOUT);
static_assert(static_cast<int>(FieldInfo::Type::flag) == NOISEFLOOR_FLAG);

// A problem as plugin.h has it, with what its pointers point to.
class Description {
 public:
  Description(const Workload& workload, const AnyProblem& problem, DType dtype, const DeviceInfo& device)
      : specs_(workload.tensors(problem, dtype)),
        values_(workload.values(problem)),
        op_(workload.name),
        text_(workload.print(problem)) {
    for (const KeyValue& value : values_) fields_.push_back(field_of(workload, value));
    for (const TensorSpec& spec : specs_)
      tensors_.push_back({spec.name, nullptr, spec.shape.data(), static_cast<std::int32_t>(spec.shape.size()),
                          static_cast<std::int32_t>(spec.dtype), static_cast<std::int32_t>(spec.role)});
    problem_ = {sizeof problem_,
                static_cast<std::int32_t>(dtype),
                op_.c_str(),
                text_.c_str(),
                fields_.data(),
                tensors_.data(),
                static_cast<std::int32_t>(fields_.size()),
                static_cast<std::int32_t>(tensors_.size()),
                device.compute_capability,
                device.sm_count,
                device.l2_bytes,
                device.shared_bytes_per_block};
  }
  Description(const Description&) = delete;

  const noisefloor_problem* operator()() const { return &problem_; }
  const noisefloor_problem* with(std::span<void* const> pointers) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].data = pointers[i];
    return &problem_;
  }

 private:
  static noisefloor_field field_of(const Workload& workload, const KeyValue& value) {
    noisefloor_field field{value.key.c_str(), value.value.c_str(), 0, 0, 0};
    for (const FieldInfo& info : workload.fields) {
      if (info.name != value.key) continue;
      field.type = static_cast<std::int32_t>(info.type);
      if (info.type == FieldInfo::Type::choice) {
        const auto found = std::find(info.choices.begin(), info.choices.end(), value.value);
        field.integer = found - info.choices.begin();
        return field;
      }
      const char* const end = value.value.data() + value.value.size();
      (void)std::from_chars(value.value.data(), end, field.real);
      if (info.type != FieldInfo::Type::real) field.integer = static_cast<std::int64_t>(field.real);
    }
    return field;
  }

  std::vector<TensorSpec> specs_;
  std::vector<KeyValue> values_;
  std::string op_, text_;
  std::vector<noisefloor_field> fields_;
  std::vector<noisefloor_tensor> tensors_;
  noisefloor_problem problem_{};
};

// Calls a function of the plugin. Whatever it throws is named.
template <class Call>
auto call(const char* function, const Call& one) {
  try {
    return one();
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("{} of the plugin threw an exception: {}", function, error.what()));
  } catch (...) {
    throw std::runtime_error(fmt::format("{} of the plugin threw something that is no std::exception", function));
  }
}

class ReadyPlugin final : public Ready {
 public:
  ReadyPlugin(const noisefloor_plugin& plugin, const Workload& workload, const AnyProblem& problem, DType dtype,
              const DeviceInfo& device)
      : plugin_(plugin), description_(workload, problem, dtype, device) {
    if (plugin_.create != nullptr)
      require("create", call("create", [&] { return plugin_.create(description_(), &state_); }));
    try {
      workspace_bytes_ = bytes("workspace_bytes", plugin_.workspace_bytes);
      prepared_bytes_ = bytes("prepared_bytes", plugin_.prepared_bytes);
      if (prepared_bytes_ > 0 && plugin_.prepare == nullptr)
        throw std::runtime_error("the plugin has prepared_bytes and no prepare");
    } catch (...) {
      destroy();
      throw;
    }
  }
  ~ReadyPlugin() override { destroy(); }

  std::size_t workspace_bytes() const override { return workspace_bytes_; }
  std::size_t prepared_bytes() const override { return prepared_bytes_; }
  void prepare(std::span<void* const> pointers, void* prepared, const LaunchContext& context) override {
    const noisefloor_launch with = call_of(pointers, {}, context);
    require("prepare", call("prepare", [&] { return plugin_.prepare(state_, &with, prepared); }));
  }
  Status launch(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context) override {
    const noisefloor_launch with = call_of(pointers, scratch, context);
    require("launch", call("launch", [&] { return plugin_.launch(state_, &with); }));
    return success();
  }

 private:
  noisefloor_launch call_of(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context) {
    return {sizeof(noisefloor_launch),
            context.programmatic_launch ? std::uint32_t{NOISEFLOOR_PROGRAMMATIC_LAUNCH} : 0,
            description_.with(pointers),
            scratch.workspace,
            scratch.prepared,
            context.stream};
  }
  std::size_t bytes(const char* name, decltype(noisefloor_plugin::workspace_bytes) function) const {
    return function == nullptr ? 0 : call(name, [&] { return function(state_, description_()); });
  }
  void require(const char* function, int error) const {
    if (error == 0) return;
    const char* const words =
        plugin_.error_text == nullptr ? nullptr : call("error_text", [&] { return plugin_.error_text(state_, error); });
    throw std::runtime_error(
        fmt::format("{} of the plugin failed: {}", function, words ? words : fmt::format("error {}", error)));
  }
  void destroy() noexcept {
    if (plugin_.destroy == nullptr) return;
    try {
      plugin_.destroy(state_);
    } catch (...) {  // its last words: the row is made
    }
  }

  noisefloor_plugin plugin_;
  Description description_;
  void* state_ = nullptr;
  std::size_t workspace_bytes_ = 0, prepared_bytes_ = 0;
};

class PluginImplementation final : public Implementation {
 public:
  PluginImplementation(const Workload& workload, const noisefloor_plugin& functions, const std::string& file,
                       Kind its_kind, Arch its_arch)
      : workload_(&workload), functions_(functions) {
    name = functions.name;
    kind = to_string(its_kind);
    arch = its_arch;
    on_host = arch == Arch::host;
    on_gpu = !on_host;
    plugin = file;
  }
  // It is asked where it is made ready: only there the device is known.
  std::unique_ptr<Ready> make(Platform& platform, const AnyProblem& problem, DType dtype, KnownTimes&) const override {
    const DeviceInfo& device = platform.description().info;
    if (functions_.can_run != nullptr) {
      const Description description(*workload_, problem, dtype, device);
      if (const char* why = call("can_run", [&] { return functions_.can_run(description()); }))
        throw LibraryRefused(*why == '\0' ? "the plugin cannot run it, and does not say why" : why);
    }
    return std::make_unique<ReadyPlugin>(functions_, *workload_, problem, dtype, device);
  }

 private:
  const Workload* workload_;
  noisefloor_plugin functions_;
};

}  // namespace

ImplementationPtr plugin_implementation(const Workload& workload, const noisefloor_plugin& plugin,
                                        const std::string& file, Kind kind, Arch arch) {
  return std::make_shared<PluginImplementation>(workload, plugin, file, kind, arch);
}

}  // namespace noisefloor
