#include "replay/kernels/device/launcher.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "replay/kernels/device/dense_launches.h"
#include "replay/kernels/host/elements.h"

namespace epweave::replay::device {

LastingMemory::~LastingMemory() {
  release_free();
  pool_.reset();
  if (home_ != nullptr) api_.destroy_stream(home_);
}

std::shared_ptr<Storage> LastingMemory::allocate(std::size_t bytes, Queue* queue) {
  {
    const std::lock_guard lock(mutex_);
    if (home_ == nullptr) check(api_.make_stream(Priority::kNormal, &home_), "make a stream");
    if (pool_ == nullptr) pool_ = std::make_shared<Pool>(api_, HostMemory::Fill::kNone);
  }
  return pool_->allocate(bytes, home_, queue);
}

void LastingMemory::release_free() {
  if (pool_ != nullptr) pool_->release_all();
}

std::shared_ptr<Storage> Launcher::allocate(std::size_t bytes) {
  std::shared_ptr<Storage> made = pool_->allocate(bytes, stream_, this);
  if (deferred_from_) made_.push_back(made.get());
  return made;
}

void Launcher::map(const MapRequest& request) {
  const Tensor& out = request.out;
  if (out.numel() == 0) return;
  if (can_defer(request)) {
    DeferredMap& map = deferred_.emplace_back(
        DeferredMap{request.op, request.compute, out, {}, request.count, request.number});
    for (std::size_t k = 0; k < request.count; ++k) map.in[k] = *request.in[k];
    return;
  }
  if (is_read_by_deferred(out)) queue_deferred();
  if (request.op == ElementOp::kCopy && request.in[0]->dtype == out.dtype) {
    if (out.element_bytes() > sizeof(std::uint64_t))
      throw KernelError("no kernel of a device copies " + std::string(info(out.dtype).name));
    CopyTask task{shape_of(out.sizes), strided(out, out.sizes), strided(*request.in[0], out.sizes),
                  static_cast<int>(out.element_bytes())};
    const std::array<Strided*, 2> operands{&task.to, &task.from};
    merge_dimensions(task.shape, operands);
    return launch_elements(task, out.numel(), {&out, request.in[0]});
  }
  switch (request.count) {
    case 0:
      return launch_map<0>(request);
    case 1:
      return launch_map<1>(request);
    case 2:
      return launch_map<2>(request);
    default:
      return launch_map<3>(request);
  }
}

template <class Task>
void Launcher::launch_elements(const Task& task, std::int64_t count,
                               std::initializer_list<const Tensor*> tensors) {
  if constexpr (!std::is_same_v<Task, MapTask<3>>)
    if (auto dense = find_dense(task)) {
      clear_padding(dense->task);
      return launch({dense->kind, &dense->task, dense->count, tensors});
    }
  launch(task, count, tensors);
}

template <int N>
void Launcher::launch_map(const MapRequest& request) {
  const Tensor& out = request.out;
  MapTask<N> task{};
  task.shape = shape_of(out.sizes);
  task.out = strided(out, out.sizes);
  task.out.stored = stored_of(out.dtype);
  std::array<Strided*, static_cast<std::size_t>(N) + 1> operands{};
  operands[0] = &task.out;
  for (std::size_t k = 0; k < static_cast<std::size_t>(N); ++k) {
    task.in[k] = strided(*request.in[k], out.sizes);
    task.in[k].stored = stored_of(request.in[k]->dtype);
    operands[k + 1] = &task.in[k];
  }
  task.number = number_of(request.number);
  task.sink = sink();
  task.op = request.op;
  task.compute = compute_of(request.compute);
  merge_dimensions(task.shape, operands);
  launch_elements(task, out.numel(), {&out, request.in[0], request.in[1], request.in[2]});
}

void Launcher::progress(const Tensor& out, const Value& start, const Value& step) {
  ProgressionTask task{};
  task.out = strided(out, out.sizes);
  task.out.stored = stored_of(out.dtype);
  if (out.sizes[0] == 1) task.out.strides[0] = 0;
  task.start = number_of(start);
  task.step = number_of(step);
  task.is_whole = !start.is<double>();
  launch(task, out.numel(), {&out});
}

// What has been kept back is read and written by kernels that compute it element by element: ops
// that raise no fault, of compute types that such a kernel has, into memory that was made
// meanwhile: so no one else sees that it is not written.
bool Launcher::can_defer(const MapRequest& request) const {
  if (!deferred_from_ || request.out.numel() < *deferred_from_) return false;
  const Compute compute = compute_of(request.compute);
  if (compute != Compute::kFloat && compute != Compute::kInt) return false;
  if (compute == Compute::kInt && request.count == 2 && math::divides_integers(request.op)) return false;
  for (std::size_t k = 0; k < request.count; ++k)
    if (request.in[k]->storage == request.out.storage) return false;
  if (std::find(made_.begin(), made_.end(), request.out.storage.get()) == made_.end()) return false;
  return !is_deferred(request.out) && !is_read_by_deferred(request.out);
}
bool Launcher::is_deferred(const Tensor& tensor) const {
  return std::any_of(deferred_.begin(), deferred_.end(),
                     [&](const DeferredMap& map) { return map.out.storage == tensor.storage; });
}
bool Launcher::is_read_by_deferred(const Tensor& tensor) const {
  return std::any_of(deferred_.begin(), deferred_.end(), [&](const DeferredMap& map) {
    return std::any_of(map.in.begin(), map.in.begin() + static_cast<std::ptrdiff_t>(map.count),
                       [&](const Tensor& in) { return in.storage == tensor.storage; });
  });
}
void Launcher::queue_deferred() {
  const auto from = std::exchange(deferred_from_, std::nullopt);
  for (const DeferredMap& map : std::exchange(deferred_, {})) {
    MapRequest request{map.op, map.compute, map.out, {}, map.count, map.number};
    for (std::size_t k = 0; k < map.count; ++k) request.in[k] = &map.in[k];
    this->map(request);
  }
  deferred_from_ = from;
}

namespace {

// Those of map(), which has looked at what they write: they come first (tasks/task_list.h).
bool is_map(TaskKind kind) {
  return kind < TaskKind::kProgression;
}
// Whether a task writes nothing but what was made for it: no map that is kept back reads that.
bool writes_only_new(TaskKind kind) {
  return kind == TaskKind::kResolveIndex || kind == TaskKind::kReadBlocks ||
         kind == TaskKind::kReadDenseBlocks || kind == TaskKind::kProgression;
}

}  // namespace

void Launcher::launch(const TaskRequest& request) {
  if (request.count == 0) return;
  if (!deferred_.empty() &&
      std::any_of(request.tensors.begin(), request.tensors.end(), [&](const Tensor* tensor) {
        return tensor != nullptr &&
               (is_deferred(*tensor) ||
                (!is_map(request.kind) && !writes_only_new(request.kind) && is_read_by_deferred(*tensor)));
      }))
    queue_deferred();
  note_use(request.tensors);
  check(api_.launch(stream_, request.kind, request.task, request.count), "launch a kernel");
}

// Of this stream's own memory there is nothing to note, and no lock to wait for.
void Launcher::note_use(std::initializer_list<const Tensor*> tensors) {
  const Queue* own = this;
  for (const Tensor* tensor : tensors)
    if (tensor != nullptr && tensor->storage->queue() != own) pool_->use(*tensor->storage, stream_);
}

Tensor Launcher::place(const Tensor& host) {
  EPWEAVE_CHECK(host.storage->is_on_host());
  Tensor placed = host;
  placed.storage = allocate(host.storage->bytes());
  check(api_.copy_in(stream_, placed.storage->data(), host.storage->data(), host.storage->bytes()),
        "copy to the device");
  return placed;
}

std::shared_ptr<Storage> Launcher::allocate_beyond(std::size_t bytes) {
  EPWEAVE_CHECK(lasting_ != nullptr);
  return lasting_->allocate(bytes, this);
}

// The same block, which names this queue as its own.
Tensor Launcher::borrow(const Tensor& tensor) {
  Tensor borrowed = tensor;
  const auto give_back = [](void*, std::size_t, void* context) {
    delete static_cast<std::shared_ptr<Storage>*>(context);
  };
  borrowed.storage = std::make_shared<Storage>(tensor.storage->data(), tensor.storage->bytes(), give_back,
                                               new std::shared_ptr<Storage>(tensor.storage), this);
  return borrowed;
}

Tensor Launcher::download(const Tensor& tensor) {
  if (tensor.storage->is_on_host()) return tensor;
  if (is_deferred(tensor)) queue_deferred();
  // The part of the storage that it covers.
  std::int64_t first = tensor.offset, last = tensor.offset;
  for (std::size_t d = 0; d < tensor.rank(); ++d) {
    const std::int64_t reach = (std::max<std::int64_t>(tensor.sizes[d], 1) - 1) * tensor.strides[d];
    (reach < 0 ? first : last) += reach;
  }
  const auto element = static_cast<std::int64_t>(tensor.element_bytes());
  const std::int64_t bytes = tensor.numel() == 0 ? 0 : (last - first + 1) * element;
  HostMemory host;
  Tensor copy = tensor;
  copy.storage = host.allocate(static_cast<std::size_t>(bytes));
  copy.offset = tensor.offset - first;
  if (bytes != 0)
    check(api_.copy_out(stream_, copy.storage->data(), tensor.storage->data() + first * element,
                        static_cast<std::size_t>(bytes)),
          "copy to the host");
  return copy;
}

std::vector<std::int64_t> Launcher::read_once(const Tensor& tensor) {
  constexpr std::size_t kMostReads = 8;
  std::erase_if(reads_, [](const Read& read) { return read.storage.expired(); });
  for (const Read& read : reads_)
    if (read.storage.lock() == tensor.storage && read.tensor.dtype == tensor.dtype &&
        read.tensor.offset == tensor.offset && read.tensor.sizes == tensor.sizes &&
        read.tensor.strides == tensor.strides)
      return read.elements;
  const Buffer<std::int64_t> elements = cpu::dense<std::int64_t>(download(tensor));
  if (reads_.size() == kMostReads) reads_.erase(reads_.begin());
  Read& read = reads_.emplace_back(Read{tensor.storage, tensor, {elements.begin(), elements.end()}});
  read.tensor.storage = nullptr;
  return read.elements;
}

void Launcher::forget(const Storage* storage) {
  std::erase_if(reads_,
                [&](const Read& read) { return storage == nullptr || read.storage.lock().get() == storage; });
}

cublas::Kernel Launcher::multiply_by_library(const cublas::Product& product,
                                             std::initializer_list<const Tensor*> tensors) {
  queue_deferred();
  note_use(tensors);
  if (workspace_ == nullptr) workspace_ = allocate(cublas::kWorkspaceBytes);
  check(api_.enter(), "be used by a thread");
  auto launch = products_->prepare(product, workspace_->data(), NodeId(site_));
  if (!launch) return cublas::Kernel::kOwn;
  clear_padding(*launch);
  const auto run = [](const void* owner, const void* argument, void* stream) {
    cublas::Products::Launch queued;
    std::memcpy(static_cast<void*>(&queued), argument, sizeof queued);
    return static_cast<const cublas::Products*>(owner)->launch(queued, stream);
  };
  if (const Error error = api_.call(stream_, {run, products_, &*launch, sizeof *launch}))
    throw KernelError(cublas::describe(product) + ": cuBLASLt cannot multiply: " + error);
  return cublas::Kernel::kLibrary;
}

Launcher& launcher_of(KernelCall& call) {
  auto* launcher = dynamic_cast<Launcher*>(&call.memory());
  EPWEAVE_CHECK(launcher != nullptr);
  return *launcher;
}

}  // namespace epweave::replay::device
