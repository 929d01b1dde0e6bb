#include "replay/cublas/products.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "replay/kernels/kernel.h"

namespace epweave::replay::cublas {
namespace {

constexpr std::uint64_t kMostAlignment = 16;  // bytes; no kernel asks for more
constexpr int kCandidates = 32;

DataType data_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return DataType::kFloat32;
    case DType::kFloat64:
      return DataType::kFloat64;
    case DType::kFloat16:
      return DataType::kFloat16;
    default:
      EPWEAVE_CHECK(dtype == DType::kBfloat16);
      return DataType::kBfloat16;
  }
}

// Bytes that the first elements of all rows (or columns) of all batches are aligned to.
std::uint32_t alignment_of(const Matrix& matrix) {
  const std::uint64_t bytes = info(matrix.dtype).bytes;
  const std::uint64_t apart = static_cast<std::uint64_t>(matrix.batch_stride) * bytes;
  const std::uint64_t leading = static_cast<std::uint64_t>(matrix.leading) * bytes;
  const std::uint64_t all = reinterpret_cast<std::uintptr_t>(matrix.data) | apart | leading | kMostAlignment;
  return static_cast<std::uint32_t>(all & (~all + 1));
}

void check(const Api& api, Status status, const char* what) {
  if (status != Status::kSuccess)
    throw KernelError(fmt::format("cuBLASLt cannot {}: {}", what, api.status_text(status)));
}

// "bf16[512, 256] x [256, 64]^T -> f32"; of a pinned class, whose rows are 0: "batches of bf16[*,
// 256] x [256, 64]"
std::string shape_text(const Product& p, std::int64_t rows) {
  const auto extents = [](std::int64_t first, std::int64_t second, const Matrix& m) {
    return m.is_transposed ? fmt::format("[{}, {}]^T", second, first)
                           : fmt::format("[{}, {}]", first, second);
  };
  std::string text;
  if (p.batches != 1) text += rows == 0 ? "batches of " : fmt::format("{} of ", p.batches);
  text += info(p.a.dtype).short_name;
  text += rows == 0
              ? (p.a.is_transposed ? fmt::format("[{}, *]^T", p.depth) : fmt::format("[*, {}]", p.depth))
              : extents(rows, p.depth, p.a);
  text += " x " + extents(p.depth, p.columns, p.b);
  if (p.c.dtype != p.a.dtype) text += fmt::format(" -> {}", info(p.c.dtype).short_name);
  return text;
}

std::string class_of(const Product& p, bool is_pinned) {
  std::string text = shape_text(p, is_pinned ? 0 : p.rows);
  text += fmt::format(", aligned to {} {} {}", alignment_of(p.a), alignment_of(p.b), alignment_of(p.c));
  if (!is_pinned)
    text += fmt::format(", leading {} {} {}, batches apart {} {} {}", p.a.leading, p.b.leading, p.c.leading,
                        p.a.batch_stride, p.b.batch_stride, p.c.batch_stride);
  return text;
}

// None where the library does not say.
template <class T>
std::optional<T> config(const Api& api, const AlgorithmBits& bits, ConfigAttribute attribute) {
  T value{};
  std::size_t written = 0;
  if (api.get_config(&bits, attribute, &value, sizeof value, &written) != Status::kSuccess)
    return std::nullopt;
  return value;
}

std::string describe(const Api& api, const Candidate& candidate) {
  const AlgorithmBits& bits = candidate.algorithm;
  // What this algorithm does not have is 0.
  const auto number = [&](auto zero, ConfigAttribute attribute) {
    return config<decltype(zero)>(api, bits, attribute).value_or(zero);
  };
  constexpr std::uint32_t kWord = 0;
  constexpr std::uint16_t kShort = 0;
  return fmt::format(
      "algorithm {}, tile {}, stages {}, inner shape {}, cluster {}, swizzling {}, option {}, split-K {}, "
      "scheme {}, "
      "workspace {}",
      number(std::int32_t{0}, ConfigAttribute::kId), number(kWord, ConfigAttribute::kTile),
      number(kWord, ConfigAttribute::kStages), number(kShort, ConfigAttribute::kInnerShape),
      number(kShort, ConfigAttribute::kClusterShape), number(kWord, ConfigAttribute::kSwizzling),
      number(kWord, ConfigAttribute::kCustomOption), number(std::int32_t{0}, ConfigAttribute::kSplitK),
      number(kWord, ConfigAttribute::kReductionScheme), candidate.workspace_bytes);
}

// Only where the library says so: an algorithm of which it does not tell is not taken.
bool adds_up_in_one_sequence(const Api& api, const AlgorithmBits& bits) {
  const auto split = config<std::int32_t>(api, bits, ConfigAttribute::kSplitK);
  const auto scheme = config<std::uint32_t>(api, bits, ConfigAttribute::kReductionScheme);
  return split && (*split == 0 || *split == 1) && scheme && *scheme == 0;
}

}  // namespace

// The descriptors of a product. The library stores columns one after the other, so it is asked for
// the transposed product of the transposed matrices, b first: no element moves.
class Call {
 public:
  Call(const Api& api, const Product& p) : api_(api) {
    const bool is_double = p.a.dtype == DType::kFloat64;
    const ComputeType compute = is_double                      ? ComputeType::kFloat64
                                : p.a.dtype == DType::kFloat32 ? ComputeType::kFloat32Pedantic
                                                               : ComputeType::kFloat32;
    Desc desc = nullptr;
    check(api, api.make_desc(&desc, compute, is_double ? DataType::kFloat64 : DataType::kFloat32),
          "describe a product");
    desc_ = {desc, api.destroy_desc};
    set_transposed(DescAttribute::kTransposeA, p.b);
    set_transposed(DescAttribute::kTransposeB, p.a);
    first_ = make_layout(p.b, {p.columns, p.depth}, p.batches);
    second_ = make_layout(p.a, {p.depth, p.rows}, p.batches);
    result_ = make_layout(p.c, {p.columns, p.rows}, p.batches);
  }
  Desc desc() const { return desc_.get(); }
  Layout first() const { return first_.get(); }
  Layout second() const { return second_.get(); }
  Layout result() const { return result_.get(); }

 private:
  using LayoutHolder = std::unique_ptr<LayoutTag, Status (*)(Layout)>;
  struct Extents2 {
    std::int64_t rows, columns;  // as the library sees the matrix, before it is transposed
  };
  void set_transposed(DescAttribute attribute, const Matrix& matrix) {
    const Operation operation = matrix.is_transposed ? Operation::kTransposed : Operation::kPlain;
    check(api_, api_.set_desc(desc_.get(), attribute, &operation, sizeof operation), "describe a product");
  }
  LayoutHolder make_layout(const Matrix& matrix, Extents2 extents, std::int64_t batches) {
    if (matrix.is_transposed) std::swap(extents.rows, extents.columns);
    Layout made = nullptr;
    check(
        api_,
        api_.make_layout(&made, data_type(matrix.dtype), static_cast<std::uint64_t>(extents.rows),
                         static_cast<std::uint64_t>(extents.columns), std::max(matrix.leading, extents.rows)),
        "describe a matrix");
    LayoutHolder layout(made, api_.destroy_layout);
    if (batches == 1) return layout;
    const auto count = static_cast<std::int32_t>(batches);
    check(api_, api_.set_layout(made, LayoutAttribute::kBatchCount, &count, sizeof count),
          "describe a batch of matrices");
    check(api_,
          api_.set_layout(made, LayoutAttribute::kBatchStride, &matrix.batch_stride,
                          sizeof matrix.batch_stride),
          "describe a batch of matrices");
    return layout;
  }

  const Api& api_;
  std::unique_ptr<DescTag, Status (*)(Desc)> desc_{nullptr, nullptr};
  LayoutHolder first_{nullptr, nullptr}, second_{nullptr, nullptr}, result_{nullptr, nullptr};
};

std::string describe(const Product& product) {
  return shape_text(product, product.rows);
}

bool has_products(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
         dtype == DType::kBfloat16;
}

std::optional<Matrix> as_matrix(const Tensor& tensor) {
  const std::size_t rank = tensor.rank();
  const std::int64_t rows = tensor.sizes[rank - 2], columns = tensor.sizes[rank - 1];
  const std::int64_t row_stride = tensor.strides[rank - 2], column_stride = tensor.strides[rank - 1];
  Matrix matrix{tensor.bytes(), tensor.dtype, false, 1, rank == 3 ? tensor.strides[0] : 0};
  if (matrix.batch_stride < 0) return std::nullopt;
  if ((columns == 1 || column_stride == 1) && (rows == 1 || row_stride >= columns)) {
    matrix.leading = rows == 1 ? columns : row_stride;
    return matrix;
  }
  if ((rows == 1 || row_stride == 1) && (columns == 1 || column_stride >= rows)) {
    matrix.is_transposed = true;
    matrix.leading = columns == 1 ? rows : column_stride;
    return matrix;
  }
  return std::nullopt;
}

Handle::Handle(const Library& library) : library_(library) {
  check(library.api, library.api.create(&context_), "start");
}
Handle::~Handle() {
  library_.api.destroy(context_);
}

// What the algorithm of a pinned class is asked for: nothing in it depends on how many rows or
// batches the product has.
Product as_pinned(Product p) {
  const bool is_batched = p.batches != 1;
  p.rows = kPinnedRows;
  p.batches = is_batched ? kPinnedBatches : 1;
  const auto lay_out = [&](Matrix& matrix, std::int64_t rows, std::int64_t columns) {
    // As far apart as the alignment of the class allows.
    const std::int64_t step = alignment_of(matrix) / static_cast<std::int64_t>(info(matrix.dtype).bytes);
    const std::int64_t unit = std::max<std::int64_t>(step, 1);
    const auto round_up = [&](std::int64_t count) { return (count + unit - 1) / unit * unit; };
    matrix.leading = round_up(matrix.is_transposed ? rows : columns);
    matrix.batch_stride = is_batched ? round_up(matrix.leading * (matrix.is_transposed ? columns : rows)) : 0;
  };
  lay_out(p.a, p.rows, p.depth);
  lay_out(p.b, p.depth, p.columns);
  lay_out(p.c, p.rows, p.columns);
  return p;
}

Products::Choice Products::ask(const Product& product, const Call& call) const {
  const Api& api = handle_.library().api;
  Preference made = nullptr;
  check(api, api.make_preference(&made), "take preferences");
  const std::unique_ptr<PreferenceTag, Status (*)(Preference)> preference(made, api.destroy_preference);
  const auto set = [&](PreferenceAttribute attribute, auto value) {
    check(api, api.set_preference(made, attribute, &value, sizeof value), "take preferences");
  };
  set(PreferenceAttribute::kMaxWorkspace, std::uint64_t{kWorkspaceBytes});
  set(PreferenceAttribute::kReductionSchemeMask, std::uint32_t{0});
  set(PreferenceAttribute::kAlignmentA, alignment_of(product.b));
  set(PreferenceAttribute::kAlignmentB, alignment_of(product.a));
  set(PreferenceAttribute::kAlignmentC, alignment_of(product.c));
  set(PreferenceAttribute::kAlignmentD, alignment_of(product.c));
  std::array<Candidate, kCandidates> candidates{};
  int found = 0;
  const Status status =
      api.find_algorithms(handle_.get(), call.desc(), call.first(), call.second(), call.result(),
                          call.result(), made, kCandidates, candidates.data(), &found);
  if (status == Status::kNotSupported) return {{}, "own kernel", Kernel::kOwn};
  check(api, status, "find an algorithm");
  const Candidate* best = nullptr;
  for (int i = 0; i < found; ++i) {
    const Candidate& candidate = candidates[static_cast<std::size_t>(i)];
    if (candidate.state != Status::kSuccess || candidate.workspace_bytes > kWorkspaceBytes ||
        !adds_up_in_one_sequence(api, candidate.algorithm))
      continue;
    if (best == nullptr) best = &candidate;
    if (candidate.workspace_bytes != 0) continue;
    best = &candidate;
    break;
  }
  if (best == nullptr) return {{}, "own kernel", Kernel::kOwn};
  return {best->algorithm, describe(api, *best), Kernel::kLibrary};
}

const Products::Choice& Products::choose(const Product& product) {
  const Api& api = handle_.library().api;
  const auto own = [&]() -> const Choice& {
    const auto [found, is_new] = chosen_.try_emplace(class_of(product, false));
    if (is_new) {
      try {
        found->second = ask(product, Call(api, product));
      } catch (...) {
        chosen_.erase(found);
        throw;
      }
    }
    return found->second;
  };
  if (pin_ == PinRows::kNo) return own();
  const std::string name = class_of(product, true);
  auto found = chosen_.find(name);
  if (found == chosen_.end()) {
    const Product pinned = as_pinned(product);
    found = chosen_.emplace(name, ask(pinned, Call(api, pinned))).first;
  }
  if (found->second.kernel == Kernel::kOwn) return found->second;  // its bits do not depend on the rows
  Candidate result{};
  const Call call(api, product);
  const bool is_supported =
      api.check_algorithm(handle_.get(), call.desc(), call.first(), call.second(), call.result(),
                          call.result(), &found->second.bits, &result) == Status::kSuccess &&
      result.workspace_bytes <= kWorkspaceBytes;
  return is_supported ? found->second : own();
}

std::optional<Products::Launch> Products::prepare(const Product& product, void* workspace, NodeId node) {
  const std::string shape = shape_text(product, product.rows);
  try {
    const Choice& choice = choose(product);
    record_.push_back({node,
                       shape,
                       choice.text,
                       product.group,
                       {std::begin(choice.bits.data), std::end(choice.bits.data)}});
    if (choice.kernel == Kernel::kOwn) return std::nullopt;
    return Launch{product, choice.bits, workspace};
  } catch (const KernelError& error) {
    throw KernelError(fmt::format("{}: {}", shape, error.what()));
  }
}

const char* Products::launch(const Launch& launch, void* native_stream) const try {
  const Api& api = handle_.library().api;
  const Product& product = launch.product;
  const Call call(api, product);
  const bool is_double = product.a.dtype == DType::kFloat64;
  const double one = 1, zero = 0;
  const float one_float = 1, zero_float = 0;
  const void* alpha = is_double ? static_cast<const void*>(&one) : &one_float;
  const void* beta = is_double ? static_cast<const void*>(&zero) : &zero_float;
  const Status status =
      api.multiply(handle_.get(), call.desc(), alpha, product.b.data, call.first(), product.a.data,
                   call.second(), beta, product.c.data, call.result(), product.c.data, call.result(),
                   &launch.algorithm, launch.workspace, kWorkspaceBytes, native_stream);
  return status == Status::kSuccess ? nullptr : api.status_text(status);
} catch (const KernelError&) {
  return "cuBLASLt cannot describe a product";
}

std::vector<LibraryProduct> Products::take_record() {
  return std::exchange(record_, {});
}

}  // namespace epweave::replay::cublas
