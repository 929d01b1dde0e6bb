#include "replay/kernels/device/graph_recorder.h"

#include <utility>

#include "replay/kernels/device/pool.h"

namespace epweave::replay::device {
namespace {

// A graph of one kernel saves nothing. Of a long stretch a part is launched when it has this many,
// so that the device does not idle while the host goes on; neither number has been measured on a
// GPU.
constexpr std::size_t kFewest = 2, kMost = 128;

}  // namespace

GraphRecorder::~GraphRecorder() {
  for (const auto& [stream, recording] : recordings_)
    for (const auto& [part, slot] : recording->slots)
      if (slot.graph != nullptr) api_.destroy_graph(slot.graph);
}

void GraphRecorder::enroll(Stream stream) {
  recordings_[stream] = std::make_unique<Recording>();
}

GraphRecorder::Recording* GraphRecorder::find(Stream stream) const {
  const auto found = recordings_.find(stream);
  return found == recordings_.end() ? nullptr : found->second.get();
}

void GraphRecorder::begin(Stream stream, std::uint32_t stretch) {
  Recording& recording = *find(stream);
  const std::lock_guard lock(recording.mutex);
  recording.is_open = true;
  recording.stretch = stretch;
  recording.part = 0;
}

void GraphRecorder::end(Stream stream) {
  Recording& recording = *find(stream);
  const std::lock_guard lock(recording.mutex);
  recording.is_open = false;
  check(launch_part(stream, recording), "launch a stretch");
}

GraphUse GraphRecorder::use_of(Stream stream) const {
  Recording& recording = *find(stream);
  const std::lock_guard lock(recording.mutex);
  return recording.use;
}

// ---- what is written down ------------------------------------------------------------------

template <class Run>
Error GraphRecorder::add(Stream stream, const Added& added, const Run& run) {
  Recording* recording = find(stream);
  if (recording == nullptr) return run();
  const std::lock_guard lock(recording->mutex);
  if (!recording->is_open) return run();
  RecordedWork& work = recording->work;
  RecordedWork::Entry& entry = work.entries.emplace_back(added.entry);
  entry.first = work.bytes.size();
  const auto* first = static_cast<const std::byte*>(added.bytes);
  work.bytes.insert(work.bytes.end(), first, first + entry.size);
  return work.entries.size() < kMost ? nullptr : launch_part(stream, *recording);
}

Error GraphRecorder::launch(Stream stream, TaskKind kind, const void* task, std::int64_t count) {
  Added added{{}, task};
  added.entry.task = kind;
  added.entry.count = count;
  added.entry.size = bytes_of_task(kind);
  return add(stream, added, [&] { return api_.launch(stream, kind, task, count); });
}

Error GraphRecorder::fill(Stream stream, void* data, int byte, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  Added added;
  added.entry.kind = RecordedWork::Kind::kFill;
  added.entry.data = data;
  added.entry.byte = byte;
  added.entry.count = static_cast<std::int64_t>(bytes);
  return add(stream, added, [&] { return api_.fill(stream, data, byte, bytes); });
}

Error GraphRecorder::call(Stream stream, const LibraryCall& call) {
  Added added{{}, call.argument};
  added.entry.kind = RecordedWork::Kind::kCall;
  added.entry.run = call.run;
  added.entry.owner = call.owner;
  added.entry.size = call.argument_bytes;
  return add(stream, added, [&] { return api_.call(stream, call); });
}

// ---- what interrupts -----------------------------------------------------------------------

Error GraphRecorder::interrupt(Stream stream, const char* why) {
  Recording* recording = find(stream);
  if (recording == nullptr) return nullptr;
  const std::lock_guard lock(recording->mutex);
  if (!recording->is_open) return nullptr;
  ++recording->use.interruptions[why];
  return launch_part(stream, *recording);
}

void* GraphRecorder::native(Stream stream) {
  check(interrupt(stream, "another library takes the stream"), "launch a stretch");
  return api_.native(stream);
}
Error GraphRecorder::record(Event event, Stream stream) {
  if (const Error error = interrupt(stream, "an event is recorded")) return error;
  return api_.record(event, stream);
}
Error GraphRecorder::wait(Stream stream, Event event) {
  Recording* recording = find(stream);
  if (recording == nullptr) return api_.wait(stream, event);
  const std::lock_guard lock(recording->mutex);
  return api_.wait(stream, event);
}
Error GraphRecorder::synchronize(Stream stream) {
  if (const Error error = interrupt(stream, "the host waits")) return error;
  return api_.synchronize(stream);
}
Error GraphRecorder::copy_in(Stream stream, void* to, const void* from, std::size_t bytes) {
  if (const Error error = interrupt(stream, "bytes are copied from the host")) return error;
  return api_.copy_in(stream, to, from, bytes);
}
Error GraphRecorder::copy_out(Stream stream, void* to, const void* from, std::size_t bytes) {
  if (const Error error = interrupt(stream, "bytes are copied to the host")) return error;
  return api_.copy_out(stream, to, from, bytes);
}
Error GraphRecorder::launch_graph(Stream stream, WorkGraph graph) {
  if (const Error error = interrupt(stream, "a graph is launched")) return error;
  return api_.launch_graph(stream, graph);
}

// ---- graphs --------------------------------------------------------------------------------

Error GraphRecorder::run(Stream stream, const RecordedWork& work) {
  for (const RecordedWork::Entry& entry : work.entries) {
    const std::byte* bytes = work.bytes.data() + entry.first;
    Error error = nullptr;
    switch (entry.kind) {
      case RecordedWork::Kind::kLaunch:
        error = api_.launch(stream, entry.task, bytes, entry.count);
        break;
      case RecordedWork::Kind::kFill:
        error = api_.fill(stream, entry.data, entry.byte, static_cast<std::size_t>(entry.count));
        break;
      case RecordedWork::Kind::kCall:
        error = api_.call(stream, {entry.run, entry.owner, bytes, entry.size});
        break;
    }
    if (error != nullptr) return error;
  }
  return nullptr;
}

// The slot's work becomes its graph.
Error GraphRecorder::capture(Stream stream, Slot& slot, Instantiation& how) {
  if (const Error error = api_.begin_capture(stream)) return error;
  const Error of_work = run(stream, slot.work);
  const Error of_end = api_.end_capture(stream, &slot.graph, &how);
  return of_work != nullptr ? of_work : of_end;
}

Error GraphRecorder::launch_part(Stream stream, Recording& recording) {
  RecordedWork work = std::exchange(recording.work, {});
  if (work.entries.empty()) return nullptr;
  Slot& slot = recording.slots[{recording.stretch, recording.part++}];
  GraphUse& use = recording.use;
  if (slot.is_refused || work.entries.size() < kFewest) {
    ++use.launched_singly;
    return run(stream, work);
  }
  if (slot.work != work) {
    ++use.seen_first;
    slot.is_captured = false;
    slot.work = std::move(work);
    return run(stream, slot.work);
  }
  if (slot.is_captured) {
    ++use.replayed;
  } else {
    Instantiation how = Instantiation::kNew;
    if (const Error refusal = capture(stream, slot, how)) {
      // Nothing was queued yet: it is launched kernel by kernel, from now on.
      slot.is_refused = true;
      ++use.refusals[refusal];
      return run(stream, slot.work);
    }
    slot.is_captured = true;
    ++(how == Instantiation::kNew ? use.instantiated : use.updated);
  }
  use.kernels += slot.work.entries.size();
  return api_.launch_graph(stream, slot.graph);
}

}  // namespace epweave::replay::device
