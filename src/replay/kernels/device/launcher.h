// A stream of a device as the kernels use it: launches, and memory in the order of the stream.
#pragma once

#include "ir/arg.h"
#include "replay/cublas/products.h"
#include "replay/kernels/device/pool.h"
#include "replay/kernels/kernel.h"
#include "replay/kernels/queue.h"

namespace epweave::replay::device {

// The compute type of a dtype's kernels, and how its elements lie in memory. Throw KernelError for
// dtypes that no kernel computes with.
Compute compute_of(DType dtype);
Stored stored_of(DType dtype);
Number number_of(const Value& value);

// The tensor broadcast to `sizes` (aligned at the last dimension).
Strided strided(const Tensor& tensor, std::span<const std::int64_t> sizes);
Shape shape_of(std::span<const std::int64_t> sizes);

// Bytes between the fields become 0, so that equal tasks have equal bytes (graph_recorder.h). Where
// the compiler cannot do that, equal tasks may be taken for different ones, never different ones
// for equal.
template <class Task>
void clear_padding([[maybe_unused]] Task& task) {
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(&task);
#endif
}

class Launcher : public Queue, public Memory {
 public:
  Launcher(DeviceApi& api, std::shared_ptr<Pool> pool, Stream stream, Fault* fault)
      : api_(api), pool_(std::move(pool)), stream_(stream), fault_(fault) {}

  void map(const MapRequest& request) override;
  void progress(const Tensor& out, const Value& start, const Value& step) override;
  std::shared_ptr<Storage> allocate(std::size_t bytes) override {
    return pool_->allocate(bytes, stream_, this);
  }
  Tensor place(const Tensor& host) override;

  // Runs task.run(0 .. count - 1). `tensors`: all that it reads and writes.
  template <class Task>
  void launch(const Task& task, std::int64_t count, std::initializer_list<const Tensor*> tensors) {
    if (count == 0) return;
    for (const Tensor* tensor : tensors)
      if (tensor != nullptr) pool_->use(*tensor->storage, stream_);
    Task sent = task;
    clear_padding(sent);
    check(api_.launch(stream_, kind_of<Task>, &sent, count), "launch a kernel");
  }
  FaultSink sink() const { return {fault_, site_}; }
  void set_site(NodeId node) { site_ = node.index(); }

  // In native math, who computes products; else null.
  void use_library(cublas::Products* products) { products_ = products; }
  bool has_library() const { return products_ != nullptr; }
  // `tensors`: all that it reads and writes. Of a product that is to be made by our own kernel
  // nothing is queued.
  cublas::Kernel multiply_by_library(const cublas::Product& product,
                                     std::initializer_list<const Tensor*> tensors);

  // The host waits for the stream: the elements in the same strides, in host memory.
  Tensor download(const Tensor& tensor);
  // The elements of a tensor of integers. The host waits for them once, as long as no one forgets
  // them.
  std::vector<std::int64_t> read_once(const Tensor& tensor);
  // The storage is about to be written; null: any may be.
  void forget(const Storage* storage);
  void synchronize() { check(api_.synchronize(stream_), "wait for a stream"); }
  Stream stream() const { return stream_; }
  void* native_stream() const { return api_.native(stream_); }
  Pool& pool() { return *pool_; }

 private:
  struct Read {
    std::weak_ptr<Storage> storage;
    Tensor tensor;  // without its storage
    std::vector<std::int64_t> elements;
  };

  template <int N>
  void launch_map(const MapRequest& request);

  DeviceApi& api_;
  std::shared_ptr<Pool> pool_;
  Stream stream_;
  Fault* fault_;
  std::uint32_t site_ = 0;
  cublas::Products* products_ = nullptr;
  std::vector<Read> reads_;             // the last ones
  std::shared_ptr<Storage> workspace_;  // of the library, from its first product on
};

// The launcher of a call: its memory's.
Launcher& launcher_of(KernelCall& call);

}  // namespace epweave::replay::device
