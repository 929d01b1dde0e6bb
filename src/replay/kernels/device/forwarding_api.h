// A device that passes every call on to another one: what stands between the two overrides some of
// them.
#pragma once

#include "replay/kernels/device/device_api.h"

namespace epweave::replay::device {

class ForwardingApi : public DeviceApi {
 public:
  explicit ForwardingApi(DeviceApi& api) : api_(api) {}
  Error find_facts(DeviceFacts& facts) override { return api_.find_facts(facts); }
  Error enter() override { return api_.enter(); }
  Error allocate(std::size_t bytes, void** data) override { return api_.allocate(bytes, data); }
  Error release(void* data) override { return api_.release(data); }
  Error make_stream(Priority priority, Stream* stream) override { return api_.make_stream(priority, stream); }
  Error destroy_stream(Stream stream) override { return api_.destroy_stream(stream); }
  void* native(Stream stream) override { return api_.native(stream); }
  Error make_event(Timing timing, Event* event) override { return api_.make_event(timing, event); }
  Error destroy_event(Event event) override { return api_.destroy_event(event); }
  Error record(Event event, Stream stream) override { return api_.record(event, stream); }
  Error wait(Stream stream, Event event) override { return api_.wait(stream, event); }
  Error synchronize(Stream stream) override { return api_.synchronize(stream); }
  Error has_passed(Event event, bool* passed) override { return api_.has_passed(event, passed); }
  Error find_seconds(Event from, Event to, double* seconds) override {
    return api_.find_seconds(from, to, seconds);
  }
  void open_range(const char* name) override { api_.open_range(name); }
  void close_range() override { api_.close_range(); }
  Error copy_in(Stream stream, void* to, const void* from, std::size_t bytes) override {
    return api_.copy_in(stream, to, from, bytes);
  }
  Error copy_out(Stream stream, void* to, const void* from, std::size_t bytes) override {
    return api_.copy_out(stream, to, from, bytes);
  }
  Error fill(Stream stream, void* data, int byte, std::size_t bytes) override {
    return api_.fill(stream, data, byte, bytes);
  }
  Error launch(Stream stream, TaskKind kind, const void* task, std::int64_t count) override {
    return api_.launch(stream, kind, task, count);
  }
  Error call(Stream stream, const LibraryCall& call) override { return api_.call(stream, call); }
  Error hold(Stream stream) override { return api_.hold(stream); }
  Error let_go(Stream stream, bool* in_time) override { return api_.let_go(stream, in_time); }
  Error begin_capture(Stream stream) override { return api_.begin_capture(stream); }
  Error end_capture(Stream stream, WorkGraph* graph, Instantiation* how) override {
    return api_.end_capture(stream, graph, how);
  }
  Error launch_graph(Stream stream, WorkGraph graph) override { return api_.launch_graph(stream, graph); }
  Error destroy_graph(WorkGraph graph) override { return api_.destroy_graph(graph); }

 protected:
  DeviceApi& api_;
};

}  // namespace epweave::replay::device
