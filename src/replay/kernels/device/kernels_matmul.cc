// Products on the device, with the layouts of the CPU's kernels (kernels/host/kernels_matmul.cc):
// in portable math by our own kernels (matmul_task.h), in native math by cuBLASLt
// (cublas/products.h) where it has the dtype.
#include <algorithm>
#include <limits>

#include "replay/kernels/device/kernels.h"
#include "replay/kernels/device/launcher.h"
#include "replay/kernels/device/product.h"
#include "replay/kernels/host/elements.h"
#include "replay/kernels/ops/matrix_calls.h"
#include "replay/kernels/ops/product_rows.h"
#include "replay/kernels/shared/convolution.h"

namespace epweave::replay::device {

MatrixPlace matrix_place(const Tensor& tensor, std::int64_t share) {
  const std::size_t rank = tensor.rank();
  return {
      tensor.bytes(), tensor.strides[rank - 2], tensor.strides[rank - 1], rank == 3 ? tensor.strides[0] : 0,
      share,          stored_of(tensor.dtype)};
}

namespace {

template <class Task>
struct Is {
  using Type = Task;
};

// The task that takes any layout.
template <class Use>
auto with_general(const MatmulProblem& p, const Use& use) {
  switch (p.a.stored) {
    case Stored::kFloat64:
      return use(Is<MatmulTask<double>>{});
    case Stored::kFloat32:
    case Stored::kBfloat16:
    case Stored::kFloat16:
      return use(Is<MatmulTask<float>>{});
    default:
      return use(Is<MatmulTask<std::int64_t>>{});
  }
}
// The task of the tile that fits: a Family<kEach>. Fewer large tiles than multiprocessors would
// leave some without work.
template <template <int> class Family, class Use>
auto with_tile(const MatmulProblem& p, const Use& use) {
  if (p.count_tiles(Family<8>::kTile) >= kMultiprocessors) return use(Is<Family<8>>{});
  return use(Is<Family<4>>{});
}

template <Stored kStored, Along kA, Along kB>
struct Tiled {
  template <int kEach>
  using Task = TiledMatmulTask<kStored, kA, kB, kEach>;
};
template <Stored kStored, class Use>
auto with_layout(const MatmulProblem& p, const Use& use) {
  constexpr Along kDepth = Along::kDepth, kOther = Along::kOther;
  const bool has_a_rows = p.a.column_stride == 1, has_b_rows = p.b.column_stride == 1;
  if (has_a_rows && has_b_rows) return with_tile<Tiled<kStored, kDepth, kOther>::template Task>(p, use);
  if (has_a_rows && p.b.row_stride == 1)
    return with_tile<Tiled<kStored, kDepth, kDepth>::template Task>(p, use);
  if (p.a.row_stride == 1 && has_b_rows)
    return with_tile<Tiled<kStored, kOther, kOther>::template Task>(p, use);
  return with_general(p, use);
}

template <Stored kStored, Along kA>
struct Covered {
  template <int kEach>
  using Task = CoveredMatmulTask<kStored, kA, Along::kOther, kEach>;
};
template <Stored kStored, class Use>
auto with_covered_layout(const MatmulProblem& p, const Use& use) {
  if (p.b.column_stride == 1 && p.a.column_stride == 1)
    return with_tile<Covered<kStored, Along::kDepth>::template Task>(p, use);
  if (p.b.column_stride == 1 && p.a.row_stride == 1 && p.divisors == nullptr)
    return with_tile<Covered<kStored, Along::kOther>::template Task>(p, use);
  return with_general(p, use);
}

// Whether blocks of `extent` cut a dimension where pieces of `step` end.
bool cuts_between(std::int64_t block, std::int64_t extent, int step) {
  return block >= extent || block % step == 0;
}
// Whether CoveredMatmulTask can make it, but for layout and dtype of b.
bool is_coverable(const MatmulProblem& p) {
  using Task = CoveredMatmulTask<Stored::kFloat32, Along::kDepth, Along::kOther, 8>;
  const bool is_stored =
      p.c.stored == Stored::kFloat32 ||
      (!p.accumulates && (p.c.stored == Stored::kBfloat16 || p.c.stored == Stored::kFloat16));
  return p.a.stored == Stored::kFloat32 && is_stored && p.grouped == GroupedBy::kNothing &&
         (p.summed.data == nullptr || (cuts_between(p.summed.row_block, p.rows, Task::kTile) &&
                                       cuts_between(p.summed.column_block, p.depth, Task::kDepth)));
}

// Whether TiledMatmulTask stores products of operands of a dtype in another one.
bool is_result(Stored of, Stored stored) {
  return stored == of || (stored == Stored::kFloat32 && of != Stored::kFloat64);
}

// use(Is<Task>) for the task that makes the product.
template <class Use>
auto with_task(const MatmulProblem& p, const Use& use) {
  if (p.depth > std::numeric_limits<std::int32_t>::max()) return with_general(p, use);
  const bool is_whole = p.summed.data == nullptr && !p.accumulates && p.divisors == nullptr;
  if (is_whole && p.a.stored == p.b.stored && is_result(p.a.stored, p.c.stored)) {
    if (p.a.stored == Stored::kFloat32) return with_layout<Stored::kFloat32>(p, use);
    if (p.a.stored == Stored::kBfloat16) return with_layout<Stored::kBfloat16>(p, use);
    if (p.a.stored == Stored::kFloat16) return with_layout<Stored::kFloat16>(p, use);
    if (p.a.stored == Stored::kFloat64) return with_layout<Stored::kFloat64>(p, use);
  }
  if (is_coverable(p)) {
    if (p.b.stored == Stored::kFloat32) return with_covered_layout<Stored::kFloat32>(p, use);
    if (p.b.stored == Stored::kBfloat16) return with_covered_layout<Stored::kBfloat16>(p, use);
  }
  return with_general(p, use);
}

}  // namespace

TaskKind kind_of_product(const MatmulProblem& problem) {
  return with_task(problem, [](auto is) { return kind_of<typename decltype(is)::Type>; });
}

void launch_product(Launcher& launcher, const MatmulProblem& problem,
                    std::initializer_list<const Tensor*> tensors) {
  with_task(problem, [&](auto is) {
    using Task = typename decltype(is)::Type;
    launcher.launch(Task{problem}, problem.count_tiles(Task::kTile), tensors);
  });
}

namespace {

struct Operands {
  const Tensor &a, &b, &out;
};

// ---- our own kernels ----------------------------------------------------------------------

void require_real(DType dtype) {
  with_real(dtype, [](auto) {});
}

// out = a b, of two dimensions or of three with as many batches.
void multiply_by_ours(Launcher& launcher, const Operands& of) {
  const std::size_t rank = of.a.rank();
  const std::int64_t batches = rank == 3 ? of.a.sizes[0] : 1;
  const std::int64_t rows = of.a.sizes[rank - 2], columns = of.b.sizes[rank - 1],
                     depth = of.a.sizes[rank - 1];
  require_real(of.a.dtype);
  MatmulProblem task{};
  task.a = matrix_place(of.a);
  task.b = matrix_place(of.b);
  task.c = matrix_place(of.out);
  task.batches = batches;
  task.rows = rows;
  task.columns = columns;
  task.depth = depth;
  launch_product(launcher, task, {&of.a, &of.b, &of.out});
}

// ---- native math --------------------------------------------------------------------------

// The tensor, or a row-major copy where the library cannot read it as it lies.
Tensor as_library_reads(Launcher& launcher, const Tensor& tensor) {
  if (cublas::as_matrix(tensor)) return tensor;
  Tensor copy = make_tensor(launcher, tensor.dtype, tensor.sizes);
  cpu::copy_elements(tensor, copy);
  return copy;
}

// out = a b by the library, or by our own kernel where it has none. `group`: of a grouped product,
// else 0.
void multiply_by_library(Launcher& launcher, const Operands& of, std::int64_t group) {
  const std::size_t rank = of.a.rank();
  cublas::Product product;
  product.batches = rank == 3 ? of.a.sizes[0] : 1;
  product.rows = of.a.sizes[rank - 2];
  product.columns = of.b.sizes[rank - 1];
  product.depth = of.a.sizes[rank - 1];
  product.group = group;
  if (of.out.numel() == 0) return;
  if (product.depth == 0) return cpu::fill_elements(of.out, Value(std::int64_t{0}));
  const Tensor a = as_library_reads(launcher, of.a), b = as_library_reads(launcher, of.b);
  Tensor out = of.out;
  const auto given = cublas::as_matrix(out);
  const bool is_written_directly = given && !given->is_transposed;
  if (!is_written_directly) out = make_tensor(launcher, out.dtype, out.sizes);
  product.a = *cublas::as_matrix(a);
  product.b = *cublas::as_matrix(b);
  product.c = *cublas::as_matrix(out);
  if (launcher.multiply_by_library(product, {&a, &b, &out}) == cublas::Kernel::kOwn)
    return multiply_by_ours(launcher, of);
  if (!is_written_directly) cpu::copy_elements(out, of.out);
}

// ---- one product or as many as there are batches ------------------------------------------

void multiply(Launcher& launcher, const Tensor& a, const Tensor& b, const Tensor& out) {
  if (launcher.has_library() && cublas::has_products(a.dtype))
    return multiply_by_library(launcher, {a, b, out}, 0);
  multiply_by_ours(launcher, {a, b, out});
}

// multiply() for a call.
auto multiply_for(KernelCall& call) {
  return [&launcher = launcher_of(call)](const Tensor& a, const Tensor& b, const Tensor& out) {
    multiply(launcher, a, b, out);
  };
}

Value mm(KernelCall& call) {
  return cpu::mm_by(call, multiply_for(call));
}
Value bmm(KernelCall& call) {
  return cpu::bmm_by(call, multiply_for(call));
}
Value mv(KernelCall& call) {
  return cpu::mv_by(call, multiply_for(call));
}
Value dot(KernelCall& call) {
  return cpu::dot_by(call, multiply_for(call));
}

Value convolution(KernelCall& call) {
  return shared::convolution(call, multiply_for(call));
}
Value convolution_backward(KernelCall& call) {
  return shared::convolution_backward(call, multiply_for(call));
}

// beta * self + alpha * (a b): the product is finished first.
Value add_product(KernelCall& call, const Extents& sizes) {
  const Tensor &self = call.tensor(0), &a = call.tensor(1), &b = call.tensor(2);
  Tensor out = call.make_result(0, a.dtype, sizes);
  const DType dtype = with_float(a.dtype, [](auto zero) { return dtype_of<decltype(zero)>; });
  Scratch scratch(call);
  const Tensor product = scratch.make(dtype, sizes), alpha = scratch.filled(dtype, {}, call[4]);
  multiply(launcher_of(call), a, b, product);
  scratch.map_into<math::ScaledSum>(out, call[3], alpha, product, self);
  return out;
}
Value addmm(KernelCall& call) {
  cpu::check_matrices(call.tensor(1), call.tensor(2), 2);
  return add_product(call, {call.tensor(1).sizes[0], call.tensor(2).sizes[1]});
}
Value baddbmm(KernelCall& call) {
  return add_product(call, cpu::sizes_of_batches(call.tensor(1), call.tensor(2), "baddbmm"));
}

// ---- groups -------------------------------------------------------------------------------

struct Grouped {
  GroupedBy by;
  std::int64_t groups, limit;  // as many group bounds, none above
  Extents sizes;
};
Grouped read_layout(const KernelCall& call) {
  const Tensor &a = call.tensor(0), &b = call.tensor(1);
  if (!call[3].is_none()) throw KernelError("_grouped_mm: bias is not supported");
  if (a.rank() < 2 || a.rank() > 3 || b.rank() < 2 || b.rank() > 3)
    throw KernelError("_grouped_mm: two or three dimensions");
  if (a.dtype != b.dtype) throw KernelError("_grouped_mm: different dtypes");
  require_real(a.dtype);
  const std::int64_t depth = a.sizes.back(), rows = a.sizes[a.rank() - 2], columns = b.sizes.back();
  if (b.sizes[b.rank() - 2] != depth) throw KernelError("_grouped_mm: inner sizes differ");
  if (a.rank() == 3 && b.rank() == 3) {
    if (a.sizes[0] != b.sizes[0]) throw KernelError("_grouped_mm: as many offs as groups");
    return {GroupedBy::kNothing, a.sizes[0], 0, {a.sizes[0], rows, columns}};
  }
  if (call[2].is_none()) throw KernelError("_grouped_mm: this layout needs offs");
  const std::int64_t groups = call.tensor(2).numel();
  if (a.rank() == 2 && b.rank() == 2) return {GroupedBy::kDepth, groups, depth, {groups, rows, columns}};
  if (groups != (b.rank() == 3 ? b.sizes[0] : a.sizes[0]))
    throw KernelError("_grouped_mm: as many offs as groups");
  if (b.rank() == 3) return {GroupedBy::kRows, groups, rows, {rows, columns}};
  return {GroupedBy::kColumns, groups, columns, {rows, columns}};
}

// The group bounds, read by the host: once for all products that have them.
std::vector<std::int64_t> read_ends(Launcher& launcher, const Tensor& ends, std::int64_t limit) {
  const std::vector<std::int64_t> values = launcher.read_once(ends);
  std::int64_t last = 0;
  for (const std::int64_t end : values) {
    if (end < last || end > limit)
      throw KernelError("_grouped_mm: offs must ascend within the dimension of " + std::to_string(limit) +
                        ", found " + std::to_string(end));
    last = end;
  }
  return values;
}
Tensor range(Tensor tensor, std::size_t dim, std::int64_t first, std::int64_t end) {
  tensor.offset += first * tensor.strides[dim];
  tensor.sizes[dim] = end - first;
  return tensor;
}
Tensor slab(Tensor tensor, std::int64_t group) {
  tensor.offset += group * tensor.strides[0];
  tensor.sizes.erase(tensor.sizes.begin());
  tensor.strides.erase(tensor.strides.begin());
  return tensor;
}

// A product per group: the library is told its extents, so the host waits for the bounds.
void multiply_groups_by_library(Launcher& launcher, const Operands& of, const Grouped& layout,
                                const Tensor& offs) {
  const std::vector<std::int64_t> ends = read_ends(launcher, offs, layout.limit);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < ends.size(); first = ends[i++]) {
    if (ends[i] == first) continue;
    const auto group = static_cast<std::int64_t>(i);
    const auto cut = [&](const Tensor& tensor, std::size_t dim) {
      return range(tensor, dim, first, ends[i]);
    };
    switch (layout.by) {
      case GroupedBy::kRows:
        multiply_by_library(launcher, {cut(of.a, 0), slab(of.b, group), cut(of.out, 0)}, group);
        break;
      case GroupedBy::kColumns:
        multiply_by_library(launcher, {slab(of.a, group), cut(of.b, 1), cut(of.out, 1)}, group);
        break;
      default:
        multiply_by_library(launcher, {cut(of.a, 1), cut(of.b, 0), slab(of.out, group)}, group);
        break;
    }
  }
}

Value grouped_mm(KernelCall& call) {
  const Grouped layout = read_layout(call);
  const Tensor &a = call.tensor(0), &b = call.tensor(1);
  Scratch scratch(call);
  Tensor out = call.make_result(0, call[4].is<DType>() ? call[4].as<DType>() : a.dtype, layout.sizes);
  cpu::fill_elements(out, Value(std::int64_t{0}));
  if (launcher_of(call).has_library() && cublas::has_products(a.dtype)) {
    if (layout.by == GroupedBy::kNothing)
      multiply_by_library(launcher_of(call), {a, b, out}, 0);
    else
      multiply_groups_by_library(launcher_of(call), {a, b, out}, layout, call.tensor(2));
    return out;
  }
  MatmulProblem task{};
  task.a = matrix_place(a);
  task.b = matrix_place(b);
  task.c = matrix_place(out);
  task.batches = layout.groups;
  task.rows = a.sizes[a.rank() - 2];
  task.columns = b.sizes.back();
  task.depth = a.sizes.back();
  task.grouped = layout.by;
  Launcher& launcher = launcher_of(call);
  if (layout.by == GroupedBy::kNothing) {
    launch_product(launcher, task, {&a, &b, &out});
    return out;
  }
  const Tensor ends = scratch.dense(call.tensor(2), DType::kInt64);
  task.ends = ends.data<std::int64_t>();
  launcher.launch(CheckOffsetsTask{task.ends, layout.groups, layout.limit, launcher.sink()}, 1, {&ends});
  launch_product(launcher, task, {&a, &b, &out, &ends});
  return out;
}

constexpr auto kRows = product_rows({.mm = mm,
                                     .addmm = addmm,
                                     .bmm = bmm,
                                     .baddbmm = baddbmm,
                                     .mv = mv,
                                     .dot = dot,
                                     .grouped_mm = grouped_mm,
                                     .convolution = convolution,
                                     .convolution_backward = convolution_backward});

}  // namespace

std::span<const KernelRow> matmul_rows() {
  return kRows;
}

}  // namespace epweave::replay::device
