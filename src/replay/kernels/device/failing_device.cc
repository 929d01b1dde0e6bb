#include "replay/kernels/device/failing_device.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/parse_number.h"
#include "replay/kernels/device/forwarding_api.h"

namespace epweave::replay::device {
namespace {

constexpr Error kCrash = "an illegal memory access was encountered";

struct OwnedDevice {
  std::unique_ptr<DeviceApi> owned;
};

class FailingDevice : OwnedDevice, public ForwardingApi {
 public:
  FailingDevice(std::unique_ptr<DeviceApi> device, const DeviceFailure& failure)
      : OwnedDevice{std::move(device)}, ForwardingApi(*owned), failure_(failure) {
    const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
    is_blocking_ = blocking != nullptr && std::strcmp(blocking, "1") == 0;
  }
  ~FailingDevice() override {
    for (void* data : kept_) api_.release(data);
  }

  Error find_facts(DeviceFacts& facts) override {
    return ask([&] { return api_.find_facts(facts); });
  }
  Error enter() override {
    return ask([&] { return api_.enter(); });
  }
  Error allocate(std::size_t bytes, void** data) override {
    return wait([&] { return api_.allocate(bytes, data); });
  }
  // Of a lost device's memory work that was queued before may still be run: it is kept until the
  // end.
  Error release(void* data) override {
    if (const Error error = find_failure(Learns::kYes)) {
      const std::lock_guard lock(mutex_);
      kept_.push_back(data);
      return error;
    }
    return api_.release(data);
  }
  Error make_stream(Priority priority, Stream* stream) override {
    return ask([&] { return api_.make_stream(priority, stream); });
  }
  Error destroy_stream(Stream stream) override { return end(api_.destroy_stream(stream)); }
  Error make_event(Timing timing, Event* event) override {
    return ask([&] { return api_.make_event(timing, event); });
  }
  Error destroy_event(Event event) override { return end(api_.destroy_event(event)); }
  Error record(Event event, Stream stream) override {
    return queue([&] { return api_.record(event, stream); });
  }
  Error wait(Stream stream, Event event) override {
    return queue([&] { return api_.wait(stream, event); });
  }
  Error synchronize(Stream stream) override {
    return end(api_.synchronize(stream));  // what was queued before the failure is run
  }
  Error has_passed(Event event, bool* passed) override {
    return wait([&] { return api_.has_passed(event, passed); });
  }
  Error find_seconds(Event from, Event to, double* seconds) override {
    return wait([&] { return api_.find_seconds(from, to, seconds); });
  }
  Error copy_in(Stream stream, void* to, const void* from, std::size_t bytes) override {
    return wait([&] { return api_.copy_in(stream, to, from, bytes); });
  }
  Error copy_out(Stream stream, void* to, const void* from, std::size_t bytes) override {
    return wait([&] { return api_.copy_out(stream, to, from, bytes); });
  }
  Error fill(Stream stream, void* data, int byte, std::size_t bytes) override {
    return queue([&] { return api_.fill(stream, data, byte, bytes); });
  }
  Error launch(Stream stream, TaskKind kind, const void* task, std::int64_t count) override {
    if (const Error error = count_launch()) return error;
    return queue([&] { return api_.launch(stream, kind, task, count); });
  }
  Error call(Stream stream, const LibraryCall& call) override {
    if (const Error error = count_launch()) return error;
    return queue([&] { return api_.call(stream, call); });
  }
  Error hold(Stream stream) override {
    return queue([&] { return api_.hold(stream); });
  }
  Error let_go(Stream stream, bool* in_time) override { return end(api_.let_go(stream, in_time)); }
  Error begin_capture(Stream stream) override {
    return ask([&] { return api_.begin_capture(stream); });
  }
  Error end_capture(Stream stream, WorkGraph* graph, Instantiation* how) override {
    const Error error = api_.end_capture(stream, graph, how);  // the stream does not capture any more
    return error != nullptr ? error : find_failure(Learns::kNo);
  }
  Error launch_graph(Stream stream, WorkGraph graph) override {
    if (const Error error = count_launch()) return error;
    return queue([&] { return api_.launch_graph(stream, graph); });
  }
  Error destroy_graph(WorkGraph graph) override { return end(api_.destroy_graph(graph)); }

 private:
  // Whether a call notices a kernel that crashed before.
  enum class Learns : std::uint8_t { kNo, kYes };

  // Counts the call. Why it fails, else null.
  Error find_failure(Learns learns) {
    const std::lock_guard lock(mutex_);
    ++calls_;
    if (failure_.at == DeviceFailure::At::kCall && calls_ >= failure_.number) is_lost_ = true;
    if (learns == Learns::kYes && has_crashed_) is_lost_ = true;
    return is_lost_ ? kCrash : nullptr;
  }
  Error count_launch() {
    const std::lock_guard lock(mutex_);
    if (failure_.at != DeviceFailure::At::kLaunch || ++launches_ != failure_.number) return nullptr;
    has_crashed_ = true;
    if (is_blocking_) is_lost_ = true;
    return is_lost_ ? kCrash : nullptr;
  }

  template <class Call>
  Error ask(const Call& call) {
    const Error error = find_failure(Learns::kNo);
    return error != nullptr ? error : call();
  }
  template <class Call>
  Error wait(const Call& call) {
    const Error error = find_failure(Learns::kYes);
    return error != nullptr ? error : call();
  }
  template <class Call>
  Error queue(const Call& call) {
    if (const Error error = find_failure(Learns::kNo)) return error;
    return has_crashed_ ? nullptr : call();
  }
  // Of a call that was made in any case.
  Error end(Error made) {
    const Error error = find_failure(Learns::kYes);
    return error != nullptr ? error : made;
  }

  DeviceFailure failure_;
  bool is_blocking_ = false;
  std::mutex mutex_;
  std::uint64_t calls_ = 0, launches_ = 0;
  std::atomic<bool> has_crashed_ = false;
  bool is_lost_ = false;
  std::vector<void*> kept_;
};

}  // namespace

std::optional<DeviceFailure> read_failure(const char* text) {
  const std::string_view all = text == nullptr ? "" : text;
  if (all.empty()) return std::nullopt;
  const std::size_t space = std::min(all.find(' '), all.size());
  const std::string_view word = all.substr(0, space);
  const auto number = parse_number<std::uint64_t>(all.substr(std::min(space + 1, all.size())));
  if ((word != "call" && word != "launch") || !number || *number == 0)
    throw UsageError(
        fmt::format("{}: '{}' is neither 'call N' nor 'launch N', from 1", kFailureVariable, all));
  return DeviceFailure{word == "call" ? DeviceFailure::At::kCall : DeviceFailure::At::kLaunch, *number};
}

std::unique_ptr<DeviceApi> make_failing_device(std::unique_ptr<DeviceApi> device,
                                               const DeviceFailure& failure) {
  return std::make_unique<FailingDevice>(std::move(device), failure);
}

}  // namespace epweave::replay::device
