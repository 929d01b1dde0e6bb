// The emulated device's streams, and memory that is given out again.
#include "replay/kernels/device/emulated.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <thread>

#include "replay/kernels/device/cuda_library.h"
#include "replay/kernels/device/emulated_kernels.h"
#include "replay/kernels/device/launcher.h"
#include "replay/kernels/host/elements.h"

namespace epweave::replay::device {
namespace {

// Two streams on one device, memory poisoned.
class TwoStreams {
 public:
  TwoStreams()
      : api_(make_emulated_device()), pool_(std::make_shared<Pool>(*api_, HostMemory::Fill::kPoison)) {
    for (Stream& stream : streams_) check(api_->make_stream(Priority::kNormal, &stream), "make a stream");
    fault_ = pool_->allocate(sizeof(Fault), streams_[0], nullptr);
    for (std::size_t i = 0; i < 2; ++i)
      launchers_[i] =
          std::make_unique<Launcher>(*api_, pool_, streams_[i], reinterpret_cast<Fault*>(fault_->data()));
  }
  ~TwoStreams() {
    for (const auto& launcher : launchers_) launcher->synchronize();
    fault_.reset();
    pool_->release_all();
    for (Stream stream : streams_) api_->destroy_stream(stream);
  }
  Launcher& operator[](std::size_t i) { return *launchers_[i]; }
  void join(std::size_t waiting, std::size_t awaited) {
    Event event = nullptr;
    check(api_->make_event(Timing::kNone, &event), "make an event");
    check(api_->record(event, streams_[awaited]), "record an event");
    check(api_->wait(streams_[waiting], event), "wait for an event");
    check(api_->destroy_event(event), "destroy an event");
  }
  Tensor filled(std::size_t stream, double number, std::int64_t elements = 100) {
    Tensor tensor = make_tensor(*launchers_[stream], DType::kFloat32, {elements});
    cpu::fill_elements(tensor, Value(number));
    return tensor;
  }
  // Queued on the stream, whatever stream the tensor belongs to.
  Tensor copied(std::size_t stream, const Tensor& from) {
    Tensor tensor = make_tensor(*launchers_[stream], DType::kFloat32, {from.numel()});
    cpu::copy_elements(from, tensor);
    return tensor;
  }
  std::size_t asked_bytes() const { return pool_->asked_bytes(); }
  float first(std::size_t stream, const Tensor& tensor) {
    return launchers_[stream]->download(tensor).data<float>()[0];
  }

 private:
  std::unique_ptr<DeviceApi> api_;
  std::shared_ptr<Pool> pool_;
  Stream streams_[2] = {};
  std::shared_ptr<Storage> fault_;
  std::unique_ptr<Launcher> launchers_[2];
};

}  // namespace

TEST_CASE("without an event another stream reads what was not written yet") {
  TwoStreams device;
  const Tensor x = device.filled(0, 2.0);
  const float read = device.first(1, device.copied(1, x));
  CHECK(read != 2.0f);
  device.join(1, 0);
  CHECK(device.first(1, device.copied(1, x)) == 2.0f);
}

TEST_CASE("freed memory that another stream still reads is not overwritten") {
  TwoStreams device;
  const std::byte* at = nullptr;
  Tensor copy;
  {
    const Tensor x = device.filled(0, 2.0);
    at = x.bytes();
    device.join(1, 0);
    copy = device.copied(1, x);  // queued, not run
  }
  const Tensor again = device.filled(0, 3.0);
  CHECK(again.bytes() == at);  // the block is given out again
  CHECK(device.first(0, again) == 3.0f);
  CHECK(device.first(1, copy) == 2.0f);
}

// Not where each request has a segment of its own (pool.h).
static bool joins_places() {
#ifdef __SANITIZE_ADDRESS__
  return false;
#else
  return std::getenv("EPWEAVE_DEVICE_BLOCKS") == nullptr;
#endif
}

TEST_CASE("free places side by side are one, and what used each of them is waited for") {
  if (!joins_places()) return;
  TwoStreams device;
  const std::byte* at = nullptr;
  {
    const Tensor large = device.filled(0, 1.0, 1024);
    at = large.bytes();
  }
  const std::size_t asked = device.asked_bytes();
  Tensor copy;
  {
    const Tensor left = device.filled(0, 2.0, 512), right = device.filled(0, 3.0, 512);
    CHECK(left.bytes() == at);
    CHECK(right.bytes() == at + 512 * sizeof(float));
    device.join(1, 0);
    copy = device.copied(1, right);  // queued, not run
  }
  const Tensor again = device.filled(0, 4.0, 1024);
  CHECK(again.bytes() == at);
  CHECK(device.asked_bytes() <= asked + 4096);  // the copy's, on the other stream
  CHECK(device.first(0, again) == 4.0f);
  CHECK(device.first(1, copy) == 3.0f);
}

TEST_CASE("memory of one stream is used again in its order, without waiting") {
  TwoStreams device;
  const std::byte* at = nullptr;
  Tensor copy;
  {
    const Tensor x = device.filled(0, 5.0);
    at = x.bytes();
    copy = device.copied(0, x);
  }
  const Tensor again = device.filled(0, 6.0);
  CHECK(again.bytes() == at);
  CHECK(device.first(0, copy) == 5.0f);
}

namespace {

// A stream of a concurrent device, and what is queued on it as other libraries do.
struct Queued {
  Queued(DeviceApi& device, Priority priority) : api(device) {
    check(api.make_stream(priority, &stream), "make a stream");
  }
  ~Queued() { api.destroy_stream(stream); }
  void call(void (*run)(void*), void* argument) {
    auto* native = static_cast<EmulatedStream*>(api.native(stream));
    native->enqueue(native, {run, nullptr, argument});
  }
  DeviceApi& api;
  Stream stream = nullptr;
};

void wait_for_flag(void* flag) {
  while (!*static_cast<std::atomic<bool>*>(flag)) std::this_thread::yield();
}
void set_flag(void* flag) {
  *static_cast<std::atomic<bool>*>(flag) = true;
}

}  // namespace

TEST_CASE("streams of the concurrent device run beside one another, events order them and tell the time") {
  const std::unique_ptr<DeviceApi> api = make_emulated_device(Emulation::kConcurrent);
  Queued first(*api, Priority::kNormal), second(*api, Priority::kHigh);
  Event begun = nullptr, done = nullptr;
  check(api->make_event(Timing::kTimed, &begun), "make an event");
  check(api->make_event(Timing::kTimed, &done), "make an event");
  bool passed = false;
  check(api->has_passed(done, &passed), "ask an event");
  CHECK(passed);  // never recorded

  std::atomic<bool> flag = false;
  check(api->record(begun, first.stream), "record an event");
  first.call(wait_for_flag, &flag);
  check(api->record(done, first.stream), "record an event");
  check(api->has_passed(done, &passed), "ask an event");
  CHECK_FALSE(passed);
  while (!passed) check(api->has_passed(begun, &passed), "ask an event");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  second.call(set_flag, &flag);  // on the first stream, or behind its work, this would never be run
  check(api->synchronize(first.stream), "wait for a stream");
  check(api->has_passed(done, &passed), "ask an event");
  CHECK(passed);
  double seconds = 0;
  check(api->find_seconds(begun, done, &seconds), "measure time");
  CHECK(seconds >= 0.02);

  // What waits for an event comes after it.
  flag = false;
  first.call(wait_for_flag, &flag);
  check(api->record(done, first.stream), "record an event");
  check(api->wait(second.stream, done), "wait for an event");
  std::atomic<bool> late = false;
  second.call(set_flag, &late);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK_FALSE(late);
  flag = true;
  check(api->synchronize(second.stream), "wait for a stream");
  CHECK(late);
  api->destroy_event(begun);
  api->destroy_event(done);
}

namespace {

constexpr int kFew = 16;

// Each thread reads what another one writes, at the other's index or behind a barrier.
struct NeighbourTask {
  float* data;
  std::int64_t count, distance;
  void run(std::int64_t i) const { data[i] = data[(i + distance + count) % count] + 1; }
};
struct NeighbourBlock {
  static constexpr int kThreads = kFew, kPhases = 1;
  struct Part {};
  struct Shared {
    float at[kFew];
  };
  struct Registers {
    float kept;
  };
  float* out;
  int distance;
  bool is_divided;  // by a barrier

  static Part part_of(std::uint32_t) { return {}; }
  static bool has_work(const Part&) { return true; }
  static int chunks(const Part&) { return 1; }
  static bool has_steps(const Part&, int) { return true; }
  void start(const Part&, int t, Shared& shared, Registers& r) const {
    r.kept = is_divided ? 0 : shared.at[(t + distance + kFew) % kFew];
    shared.at[t] = static_cast<float>(t);
  }
  template <int>
  void phase(const Part&, int, int t, Shared& shared, Registers& r) const {
    if (is_divided) r.kept = shared.at[(t + distance + kFew) % kFew];
  }
  void store(const Part&, int t, const Registers& r) const { out[t] = r.kept; }
};
struct NeighbourRows {
  static constexpr int kThreads = kFew;
  struct Shared {
    float at[kFew];
  };
  float* out;
  int distance;
  bool is_divided;

  std::int64_t steps() const { return 2; }
  void step(std::int64_t number, std::int64_t, int t, Shared& shared) const {
    if (number == (is_divided ? 1 : 0)) out[t] = shared.at[(t + distance + kFew) % kFew];
    if (number == 0) shared.at[t] = static_cast<float>(t);
  }
};

// What threads find of their neighbours, by turns in both orders: of some their own number's.
template <class Task>
int count_right(const Task& task, const float* found, void (*run)(const Task&, std::int64_t)) {
  run(task, 1);
  int right = 0;
  for (int t = 0; t < kFew; ++t)
    right += found[t] == static_cast<float>((t + task.distance + kFew) % kFew) ? 1 : 0;
  return right;
}

}  // namespace

TEST_CASE("threads that read what others write meanwhile find other values on the emulated device") {
  for (const int distance : {1, -1, 2, -2}) {
    CAPTURE(distance);
    float numbers[kFew], found[kFew];
    for (int i = 0; i < kFew; ++i) numbers[i] = found[i] = static_cast<float>(i);
    run_threads(NeighbourTask{numbers, kFew, distance}, kFew);
    int old = 0, changed = 0;
    for (int i = 0; i < kFew; ++i)
      ++(numbers[i] == static_cast<float>((i + distance + kFew) % kFew + 1) ? old : changed);
    CHECK(old > 0);
    CHECK(changed > 0);
    const auto blocks = [](const NeighbourBlock& task, std::int64_t count) { run_blocks(task, count); };
    const auto rows = [](const NeighbourRows& task, std::int64_t count) { run_rows(task, count); };
    CHECK(count_right<NeighbourBlock>({found, distance, true}, found, blocks) == kFew);
    CHECK(count_right<NeighbourBlock>({found, distance, false}, found, blocks) < kFew);
    CHECK(count_right<NeighbourRows>({found, distance, true}, found, rows) == kFew);
    CHECK(count_right<NeighbourRows>({found, distance, false}, found, rows) < kFew);
  }
}

TEST_CASE("a CUDA part serves programs of its sources, flags and nvcc") {
  CHECK(serves_build("0123456789abcdef-01234567", "0123456789abcdef-01234567"));
  CHECK(serves_build("0123456789abcdef-01234567", "0123456789abcdef"));  // built without nvcc
  CHECK_FALSE(serves_build("0123456789abcdef-01234567", "0123456789abcdef-01234568"));
  CHECK_FALSE(serves_build("0123456789abcdef", "0123456789abcdef-01234567"));
  CHECK_FALSE(serves_build("1123456789abcdef-01234567", "0123456789abcdef"));
}

}  // namespace epweave::replay::device
