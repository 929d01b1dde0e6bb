// A stream of a device as the kernels use it: launches, and memory in the order of the stream.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "ir/arg.h"
#include "replay/cublas/products.h"
#include "replay/kernels/device/pool.h"
#include "replay/kernels/kernel.h"
#include "replay/kernels/shared/queue.h"
#include "replay/kernels/shared/scratch.h"

namespace epweave::replay::device {

using cpu::compute_of;
using namespace shared;  // NOLINT: what kernels are composed of

// A map that is kept back, so that it can be made one kernel with others.
struct DeferredMap {
  ElementOp op;
  DType compute;
  Tensor out;
  std::array<Tensor, 3> in;
  std::size_t count;
  Value number;
};

// Memory of a device beside that of its runs. Who frees a block has waited for the work that uses
// it: blocks are given out again at once, on whatever stream.
class LastingMemory {
 public:
  explicit LastingMemory(DeviceApi& api) : api_(api) {}
  ~LastingMemory();
  LastingMemory(const LastingMemory&) = delete;
  LastingMemory& operator=(const LastingMemory&) = delete;

  std::shared_ptr<Storage> allocate(std::size_t bytes, Queue* queue);
  // Gives back to the device what nobody holds.
  void release_free();

 private:
  DeviceApi& api_;
  std::mutex mutex_;
  std::shared_ptr<Pool> pool_;  // null, as the stream, until it is needed
  Stream home_ = nullptr;
};

class Launcher : public Queue, public Memory {
 public:
  Launcher(DeviceApi& api, std::shared_ptr<Pool> pool, Stream stream, Fault* fault)
      : api_(api), pool_(std::move(pool)), stream_(stream), fault_(fault) {}

  void map(const MapRequest& request) override;
  void progress(const Tensor& out, const Value& start, const Value& step) override;
  std::shared_ptr<Storage> allocate(std::size_t bytes) override;
  Tensor place(const Tensor& host) override;
  bool outlives_run() const override { return false; }
  std::shared_ptr<Storage> allocate_beyond(std::size_t bytes) override;
  Tensor borrow(const Tensor& tensor) override;

  void launch(const TaskRequest& request) override;
  // Runs task.run(0 .. count - 1). `tensors`: all that it reads and writes.
  template <class Task>
  void launch(const Task& task, std::int64_t count, std::initializer_list<const Tensor*> tensors) {
    shared::launch(*this, task, count, tensors);
  }
  FaultSink sink() const override { return {fault_, site_}; }
  void set_site(NodeId node) { site_ = node.index(); }
  // Memory that outlives the run; without it allocate_beyond() is not called.
  void use_lasting(LastingMemory& lasting) { lasting_ = &lasting; }

  // In native math, who computes products; else null.
  void use_library(cublas::Products* products) {
    products_ = products;
    has_tensor_cores_ = products != nullptr;
  }
  bool has_library() const { return products_ != nullptr; }
  // Attention is native math's, without a library.
  void use_tensor_cores() { has_tensor_cores_ = true; }
  bool has_tensor_cores() const { return has_tensor_cores_; }
  // `tensors`: all that it reads and writes. Of a product that is to be made by our own kernel
  // nothing is queued.
  cublas::Kernel multiply_by_library(const cublas::Product& product,
                                     std::initializer_list<const Tensor*> tensors);

  // From here on maps into new tensors of at least so many elements, by ops that refuse no value,
  // are kept back until something else needs what they write. As long as it lives; one at a time.
  class Deferral {
   public:
    Deferral(Launcher& launcher, std::int64_t elements) : launcher_(launcher) {
      launcher.deferred_from_ = elements;
    }
    ~Deferral() {
      launcher_.deferred_from_.reset();
      launcher_.deferred_.clear();
      launcher_.made_.clear();
    }
    Deferral(const Deferral&) = delete;
    Deferral& operator=(const Deferral&) = delete;

    // Those that are kept back, in order.
    const std::vector<DeferredMap>& maps() const { return launcher_.deferred_; }
    // They are queued after all, and so is what follows.
    void end() { launcher_.queue_deferred(); }

   private:
    Launcher& launcher_;
  };

  Tensor download(const Tensor& tensor) override;
  // The elements of a tensor of integers. The host waits for them once, as long as no one forgets
  // them.
  std::vector<std::int64_t> read_once(const Tensor& tensor);
  // The storage is about to be written; null: any may be.
  void forget(const Storage* storage);
  void synchronize() { check(api_.synchronize(stream_), "wait for a stream"); }
  // What is launched next reads or writes the tensor, beside those that it is given.
  void use(const Tensor& tensor) { note_use({&tensor}); }
  Stream stream() const { return stream_; }
  void* native_stream() const { return api_.native(stream_); }
  Pool& pool() { return *pool_; }

 private:
  struct Read {
    std::weak_ptr<Storage> storage;
    Tensor tensor;  // without its storage
    std::vector<std::int64_t> elements;
  };

  void note_use(std::initializer_list<const Tensor*> tensors);
  template <int N>
  void launch_map(const MapRequest& request);
  // The task, or the dense kernel that does the same.
  template <class Task>
  void launch_elements(const Task& task, std::int64_t count, std::initializer_list<const Tensor*> tensors);
  bool can_defer(const MapRequest& request) const;
  bool is_deferred(const Tensor& tensor) const;  // written by a map that is kept back
  bool is_read_by_deferred(const Tensor& tensor) const;
  void queue_deferred();

  DeviceApi& api_;
  std::shared_ptr<Pool> pool_;
  Stream stream_;
  Fault* fault_;
  std::uint32_t site_ = 0;
  cublas::Products* products_ = nullptr;
  bool has_tensor_cores_ = false;
  LastingMemory* lasting_ = nullptr;
  std::vector<Read> reads_;             // the last ones
  std::shared_ptr<Storage> workspace_;  // of the library, from its first product on
  std::optional<std::int64_t> deferred_from_;
  std::vector<DeferredMap> deferred_;
  std::vector<const Storage*> made_;  // since maps are kept back
};

// The launcher of a call: its memory's.
Launcher& launcher_of(KernelCall& call);
inline Launcher& launcher_of(Scratch& scratch) {
  return static_cast<Launcher&>(*scratch.queue());
}

}  // namespace epweave::replay::device
