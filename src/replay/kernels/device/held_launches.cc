#include "replay/kernels/device/held_launches.h"

#include <utility>

namespace epweave::replay::device {

Error HeldLaunches::hold(Stream stream) {
  if (const Error error = api_.hold(stream)) return error;
  held_ = stream;
  launches_ = 0;
  has_host_time_ = false;
  return nullptr;
}

Error HeldLaunches::let_go(Stream, bool* in_time) {
  const Error error = end_hold(in_time);
  *in_time = !has_host_time_;
  return error;
}

Error HeldLaunches::end_hold(bool* in_time) {
  *in_time = false;
  if (held_ == nullptr) return nullptr;
  const Error error = api_.let_go(std::exchange(held_, nullptr), in_time);
  if (!*in_time) has_host_time_ = true;
  return error;
}

// The host is about to do what may wait for the work.
Error HeldLaunches::stop_holding() {
  if (held_ == nullptr) return nullptr;
  has_host_time_ = true;
  bool in_time = false;
  return end_hold(&in_time);
}

Error HeldLaunches::count_launch() {
  return held_ != nullptr && ++launches_ > kMostLaunches ? stop_holding() : nullptr;
}

Error HeldLaunches::allocate(std::size_t bytes, void** data) {
  const Error error = stop_holding();
  return error != nullptr ? error : api_.allocate(bytes, data);
}
Error HeldLaunches::release(void* data) {
  const Error error = stop_holding();
  const Error released = api_.release(data);
  return error != nullptr ? error : released;
}
Error HeldLaunches::synchronize(Stream stream) {
  const Error error = stop_holding();
  return error != nullptr ? error : api_.synchronize(stream);
}
Error HeldLaunches::copy_in(Stream stream, void* to, const void* from, std::size_t bytes) {
  const Error error = stop_holding();
  return error != nullptr ? error : api_.copy_in(stream, to, from, bytes);
}
Error HeldLaunches::copy_out(Stream stream, void* to, const void* from, std::size_t bytes) {
  const Error error = stop_holding();
  return error != nullptr ? error : api_.copy_out(stream, to, from, bytes);
}
Error HeldLaunches::fill(Stream stream, void* data, int byte, std::size_t bytes) {
  const Error error = count_launch();
  return error != nullptr ? error : api_.fill(stream, data, byte, bytes);
}
Error HeldLaunches::launch(Stream stream, TaskKind kind, const void* task, std::int64_t count) {
  const Error error = count_launch();
  return error != nullptr ? error : api_.launch(stream, kind, task, count);
}
Error HeldLaunches::call(Stream stream, const LibraryCall& call) {
  const Error error = count_launch();
  return error != nullptr ? error : api_.call(stream, call);
}

}  // namespace epweave::replay::device
