// THE KERNEL INTERFACE: how one op of the op table is executed on one device.
//
// A device has one table of kernels, a function per op (row of ops/op.h, keyed by OpInfo::index).
// The executor evaluates a call's arguments, calls the kernel and keeps what it returns:
//
//   Value add_tensor(KernelCall& call) {
//     const Tensor& a = call.tensor(0);                     // parameters by position in the op's schema
//     const Value& b = call[1];                             // Tensor, or a number (traced graphs have both)
//     Tensor out = call.make_result(0, dtype, broadcast);   // recorded strides
//     ...
//     return out;
//   }
//
// Rules:
// 1. Parameters are in the order of the schema, keyword-only ones too; what the call leaves out has
//    the schema's default (`given(i)` tells). Symbolic sizes are numbers by then.
// 2. A view returns a tensor over the same storage. An in-place op and an `out=` op write the
//    argument and return it. Everything else returns new storage and writes nothing.
// 3. Several results are one tuple (`Value::tuple`), `Tensor[]` is one list. No result is None.
// 4. Nothing is read but the arguments, nothing kept between calls: kernels run on all ranks'
//    threads at once. A kernel is single-threaded.
// 5. Results have the recorded dtype, sizes and strides; the executor checks this after each call,
//    so that a wrong kernel stops at its own node. Inside a nested graph (`is_nested`) arguments
//    are broadcast (value.h) and recorded sizes say nothing; recorded dtypes hold.
// 6. Throw KernelError for values the op itself refuses (index out of range, shapes that do not
//    fit).
//
// The executor itself does: placeholders, get_attr, output, collectives and wait_tensor. Ops on
// host numbers (operator.*, sym_size, _local_scalar_dense, getitem, mesh lookups) are in
// host_kernels.cc and serve every device.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ops/op.h"
#include "replay/values/tensor.h"
#include "replay/values/value.h"

namespace epweave::replay {

// The arguments' values do not fit the op. The executor adds rank, node, op, module and source
// line.
class KernelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What is recorded about one result, with numbers for symbols.
struct ResultType {
  bool is_tensor = false;
  DType dtype = DType::kFloat32;
  Extents sizes, strides;
  std::int64_t offset = 0;
};

class KernelCall {
 public:
  KernelCall(const OpInfo& op, std::vector<Value> args, std::uint32_t given, Memory& memory)
      : op_(&op), args_(std::move(args)), given_(given), memory_(&memory) {}

  const OpInfo& op() const { return *op_; }
  std::size_t size() const { return args_.size(); }
  std::span<const Value> args() const { return args_; }
  const Value& operator[](std::size_t param) const { return args_[param]; }
  bool given(std::size_t param) const { return (given_ >> param & 1) != 0; }

  const Tensor& tensor(std::size_t param) const { return args_[param].tensor(); }
  std::int64_t integer(std::size_t param) const { return args_[param].integer(); }
  double real(std::size_t param) const { return args_[param].real(); }
  bool boolean(std::size_t param) const { return args_[param].boolean(); }

  // What the graph recorded about result `i` (element i of a tuple; 0 of a single tensor), or null.
  const ResultType* result(std::size_t i) const {
    return i < results_.size() && results_[i].is_tensor ? &results_[i] : nullptr;
  }
  std::size_t result_count() const { return results_.size(); }
  // The recorded dtype, else `otherwise`.
  DType result_dtype(std::size_t i, DType otherwise) const {
    return result(i) ? result(i)->dtype : otherwise;
  }
  // A new tensor for result `i`: the recorded strides if `sizes` are the recorded ones (and it is
  // not nested), else row-major.
  Tensor make_result(std::size_t i, DType dtype, Extents sizes);
  // Another new tensor, row-major (scratch space).
  Tensor make(DType dtype, Extents sizes) { return make_tensor(*memory_, dtype, std::move(sizes)); }
  Memory& memory() { return *memory_; }

  bool is_nested() const { return is_nested_; }

  // Of an op that draws random numbers: which draw this is. Draws of one number are the same.
  std::uint64_t draw() const { return draw_; }

  // For the executor.
  void set_results(std::vector<ResultType> results) { results_ = std::move(results); }
  void set_nested() { is_nested_ = true; }
  void set_draw(std::uint64_t draw) { draw_ = draw; }

 private:
  const OpInfo* op_;
  std::vector<Value> args_;
  std::uint32_t given_;
  Memory* memory_;
  std::vector<ResultType> results_;
  bool is_nested_ = false;
  std::uint64_t draw_ = 0;
};

using KernelFn = Value (*)(KernelCall& call);

struct KernelRow {
  std::string_view target;
  KernelFn run = nullptr;
};

// One device's kernels. A later row for the same op replaces an earlier one.
class KernelTable {
 public:
  KernelTable();
  // CHECKs that every target has a row in the op table.
  void add(std::span<const KernelRow> rows);
  KernelFn find(const OpInfo& op) const { return kernels_[op.index]; }

 private:
  std::vector<KernelFn> kernels_;
};

std::span<const KernelRow> host_kernel_rows();  // host_kernels.cc

}  // namespace epweave::replay
