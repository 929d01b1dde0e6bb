// THE VOCABULARY of the kernels that are written once, for the CPU and for a device: operands in a
// compute type, elementwise steps, and what is done to rows - sums, extremes, scans, sorts.
//
// An operation has two forms where a CPU and a GPU do it differently (scratch.cc has them side by
// side), in one order, so that the bits are the same. The CPU computes at once; a device launches
// tasks (tasks/), which the CPU runs as loops where it has no form of its own.
//
//   // softmax along a dimension
//   Scratch scratch(call);
//   const Rows in = scratch.rows_along(self, dim), out = scratch.rows_for_along(result, dim);
//   scratch.for_each_block(in, {&out}, [&](const Block& block) {
//     const Tensor x = block.load(in, DType::kFloat32);                    // [rows of the block, length]
//     const Tensor maximum = scratch.maximum_of_rows(x, NanRule::kSkip);   // [rows of the block, 1]
//     const Tensor e = scratch.map<Exp>(scratch.map<Difference>(x, maximum));
//     block.map_into<Div>(out, e, scratch.sum_rows(e));
//   });
//
// A block is as many rows as stay in a core's cache with what is computed of them; on a device,
// all.
#pragma once

#include <algorithm>

#include "replay/kernels/host/map_ops.h"
#include "replay/kernels/shared/launch.h"

namespace epweave::replay::shared {

using tasks::NanRule;
using tasks::RowOp;
using tasks::ScanOp;

// The dtype that holds a compute type without rounding.
DType computed_dtype(DType dtype);
template <class C>
inline constexpr DType dtype_of = DType::kInt64;
template <>
inline constexpr DType dtype_of<float> = DType::kFloat32;
template <>
inline constexpr DType dtype_of<double> = DType::kFloat64;
template <>
inline constexpr DType dtype_of<math::Complex> = DType::kComplex64;

// Calls f(C()) with the compute type: float or double, for `with_real` int64 too; others are
// refused.
template <class F>
decltype(auto) with_float(DType dtype, const F& f) {
  if (cpu::compute_of(dtype) == Compute::kFloat) return f(float{});
  if (cpu::compute_of(dtype) == Compute::kDouble) return f(double{});
  throw KernelError("the op is defined for floating-point tensors, not for " + std::string(info(dtype).name));
}
template <class F>
decltype(auto) with_real(DType dtype, const F& f) {
  if (cpu::compute_of(dtype) == Compute::kInt) return f(std::int64_t{});
  return with_float(dtype, f);
}
// The same for complex numbers too.
template <class F>
decltype(auto) with_any(DType dtype, const F& f) {
  if (cpu::compute_of(dtype) == Compute::kComplex) return f(math::Complex{});
  return with_real(dtype, f);
}
// The compute type's dtype of floats; others are refused.
inline DType floating_dtype(DType dtype) {
  return with_float(dtype, [](auto zero) { return dtype_of<decltype(zero)>; });
}

// The tensor with the dimension last.
Tensor with_dim_last(Tensor tensor, std::size_t dim);

// A tensor seen as a matrix: the dimensions before `split` number its rows, those from it on an
// element's place in one.
struct Rows {
  Tensor tensor;
  std::int64_t count = 1, length = 1;
  Tensor matrix;  // the elements as [count, length], in place where the strides allow it; else a copy, on a
                  // device nothing
};

// The tensor as [rows, length] in place, its dimensions before `split` numbering the rows; none
// where the strides do not allow it, and of no elements.
std::optional<Tensor> find_matrix(const Tensor& tensor, std::size_t split);

class Scratch;

// Some rows of each of several tensors: [first, first + count).
class Block {
 public:
  Block(Scratch& scratch, std::int64_t first, std::int64_t count)
      : scratch_(scratch), first_(first), count_(count) {}
  // [count, length], row-major, not to be written.
  Tensor load(const Rows& rows, DType dtype) const;
  // The same in new memory.
  Tensor load_copy(const Rows& rows, DType dtype) const;
  // [count, length] in any dtype.
  void store(const Tensor& values, const Rows& rows) const;
  // The same of Op(in...), computed in the dtype of the first.
  template <class Op, class... In>
  void map_into(const Rows& rows, const In&... in) const;

 private:
  Tensor part_of(const Rows& rows) const;
  Scratch& scratch_;
  std::int64_t first_, count_;
};

// Scratch tensors of a call, row-major, and what can be done with them.
class Scratch {
 public:
  explicit Scratch(KernelCall& call) : call_(call), queue_(dynamic_cast<Queue*>(&call.memory())) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // The device's; null on the CPU.
  Queue* queue() const { return queue_; }
  // Memory of a device is the call's. On the CPU it is not counted as the run's, as a kernel's
  // buffers are not.
  Tensor make(DType dtype, Extents sizes);
  Tensor filled(DType dtype, Extents sizes, const Value& number);
  // The tensor itself where it is row-major and of the dtype, else a copy.
  Tensor dense(const Tensor& tensor, DType dtype);
  // A row-major copy in any case.
  Tensor copied(const Tensor& tensor, DType dtype);

  // Op(in...), broadcast, in the dtype of the first.
  template <class Op, class... In>
  Tensor map(const In&... in) {
    return map_with<Op>(Value(), in...);
  }
  // Of an op that takes a number.
  template <class Op, class... In>
  Tensor map_with(const Value& number, const In&... in) {
    const std::vector<const Tensor*> all{&in...};
    Tensor out = make(all.front()->dtype, cpu::broadcast_sizes(all));
    map_into<Op>(out, number, in...);
    return out;
  }
  // Into `out`, computed in the compute type of the first.
  template <class Op, class... In>
  void map_into(const Tensor& out, const Value& number, const In&... in) {
    const std::array<const Tensor*, sizeof...(In)> all{&in...};
    cpu::map_op<Op, sizeof...(In)>(call_, all[0]->dtype, out, all, number);
  }

  // To be read, and to be written.
  Rows rows_of(const Tensor& tensor, std::size_t split);
  Rows rows_for(const Tensor& tensor, std::size_t split);
  // Along one dimension; of a tensor without dimensions its element.
  Rows rows_along(const Tensor& tensor, std::size_t dim) {
    return rows_of(with_dim_last(tensor, dim), std::max<std::size_t>(tensor.rank(), 1) - 1);
  }
  Rows rows_for_along(const Tensor& tensor, std::size_t dim) {
    return rows_for(with_dim_last(tensor, dim), std::max<std::size_t>(tensor.rank(), 1) - 1);
  }
  // Calls f(block) for blocks that together are all rows; all Rows that f looks at have as many.
  // `written`: what f writes; null ones are nothing.
  template <class F>
  void for_each_block(const Rows& rows, std::initializer_list<const Rows*> written, const F& f) {
    const std::int64_t step = rows_of_a_block(rows);
    std::int64_t first = 0;
    do {
      f(Block(*this, first, std::min(step, rows.count - first)));
      first += step;
    } while (first < rows.count);
    for (const Rows* each : written)
      if (each != nullptr) finish(*each);
  }

  // Of a matrix [rows, length] that is row-major and of a compute type; results are [rows, 1].
  //
  // Sums in the one order (math/sum_order.h). kMean: divided by the length.
  enum class Sum { kTotal, kMean };
  Tensor sum_rows(const Tensor& x, Sum sum = Sum::kTotal);
  // Of rows of `length` elements, from the sums of their tiles.
  Tensor add_tiles(const Tensor& sums, std::int64_t length, Sum sum);
  // Of the columns: [1, columns].
  Tensor sum_columns(const Tensor& x);
  Tensor maximum_of_rows(const Tensor& x, NanRule nan);

  // The largest or smallest of each row, and where: the first of equals, a NaN wins; or whether all
  // or any elements are true (1 or 0; no values).
  struct Found {
    Tensor values, positions;  // the latter int64
  };
  Found find_in_rows(const Tensor& x, RowOp op);

  // Partial sums or products of each row in place: of integers in parallel, of floats one after the
  // other.
  void scan_rows(const Tensor& x, ScanOp op);
  // Each row sorted, stable, NaN being the largest, and where its elements were.
  struct Sorted {
    Tensor values, indices;
  };
  enum class Direction : std::uint8_t { kAscending, kDescending };
  Sorted sort_rows(const Tensor& x, Direction direction);

  // Runs task.run(0 .. count - 1). `tensors`: all that it reads and writes; null ones count
  // nothing. A value that the task refuses is thrown at once on the CPU, and where the host waits
  // on a device.
  template <class Task>
  void launch(const Task& task, std::int64_t count, std::initializer_list<const Tensor*> tensors) {
    if (queue_ != nullptr) return shared::launch(*queue_, task, count, tensors);
    for (std::int64_t i = 0; i < count; ++i) task.run(i);
    throw_fault();
  }
  tasks::FaultSink sink() { return queue_ != nullptr ? queue_->sink() : tasks::FaultSink{&fault_, 0}; }
  // A tensor of host memory, where the call's are.
  Tensor place(const Tensor& host) { return call_.memory().place(host); }
  // The elements in host memory, in the same strides.
  Tensor download(const Tensor& tensor) { return queue_ != nullptr ? queue_->download(tensor) : tensor; }

 private:
  // Which elements are added up: of a matrix's rows, or of its columns.
  enum class Along { kRows, kColumns };
  Tensor sum_on_device(const Tensor& x, Along along, Sum sum);
  std::int64_t rows_of_a_block(const Rows& rows) const;
  void finish(const Rows& written);
  void throw_fault() const;

  KernelCall& call_;
  Queue* queue_;
  HostMemory host_;
  tasks::Fault fault_{};
};

template <class Op, class... In>
void Block::map_into(const Rows& rows, const In&... in) const {
  if (scratch_.queue() == nullptr) return scratch_.map_into<Op>(part_of(rows), Value(), in...);
  if (rows.tensor.sizes == Extents{rows.count, rows.length})
    return scratch_.map_into<Op>(rows.tensor, Value(), in...);
  store(scratch_.map<Op>(in...), rows);
}

// `values` (row-major, in any dtype) stored into a new result of the call.
Tensor store_result(KernelCall& call, std::size_t i, DType dtype, const Extents& sizes, const Tensor& values);

// [rows, length] seen in a row-major tensor of as many elements.
Tensor as_matrix(const Tensor& dense, std::int64_t rows, std::int64_t length);

}  // namespace epweave::replay::shared
