#include "replay/cublas/products.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "replay/kernel.h"

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

// Bytes that the first elements of all batches are aligned to.
std::uint32_t alignment_of(const Matrix& matrix) {
  const std::uint64_t bytes = info(matrix.dtype).bytes;
  const std::uint64_t apart = static_cast<std::uint64_t>(matrix.batch_stride) * bytes;
  const std::uint64_t all = reinterpret_cast<std::uintptr_t>(matrix.data) | apart | kMostAlignment;
  return static_cast<std::uint32_t>(all & (~all + 1));
}

void check(const Api& api, Status status, const char* what) {
  if (status != Status::kSuccess)
    throw KernelError(fmt::format("cuBLASLt cannot {}: {}", what, api.status_text(status)));
}

// "bf16[512, 256] x [256, 64]^T -> f32"
std::string shape_text(const Product& p, std::int64_t rows) {
  const auto extents = [](std::int64_t first, std::int64_t second, const Matrix& m) {
    return m.is_transposed ? fmt::format("[{}, {}]^T", second, first)
                           : fmt::format("[{}, {}]", first, second);
  };
  std::string text;
  if (p.batches != 1) text += fmt::format("{} of ", p.batches);
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
  if (!is_pinned) text += fmt::format(", leading {} {} {}", p.a.leading, p.b.leading, p.c.leading);
  return text;
}

template <class T>
T config(const Api& api, const AlgorithmBits& bits, ConfigAttribute attribute) {
  T value{};
  std::size_t written = 0;
  // What this algorithm does not have stays 0.
  static_cast<void>(api.get_config(&bits, attribute, &value, sizeof value, &written));
  return value;
}

std::string describe(const Api& api, const AlgorithmBits& bits) {
  return fmt::format("algorithm {}, tile {}, stages {}, inner shape {}, cluster {}, swizzling {}, option {}",
                     config<std::int32_t>(api, bits, ConfigAttribute::kId),
                     config<std::uint32_t>(api, bits, ConfigAttribute::kTile),
                     config<std::uint32_t>(api, bits, ConfigAttribute::kStages),
                     config<std::uint16_t>(api, bits, ConfigAttribute::kInnerShape),
                     config<std::uint16_t>(api, bits, ConfigAttribute::kClusterShape),
                     config<std::uint32_t>(api, bits, ConfigAttribute::kSwizzling),
                     config<std::uint32_t>(api, bits, ConfigAttribute::kCustomOption));
}

bool adds_up_in_one_sequence(const Api& api, const AlgorithmBits& bits) {
  return config<std::int32_t>(api, bits, ConfigAttribute::kSplitK) <= 1 &&
         config<std::uint32_t>(api, bits, ConfigAttribute::kReductionScheme) == 0;
}

}  // namespace

// The descriptors of a product. The library stores columns one after the other, so it is asked for the transposed
// product of the transposed matrices, b first: no element moves.
class Call {
 public:
  Call(const Api& api, const Product& p, std::int64_t rows) : api_(api) {
    const bool is_double = p.a.dtype == DType::kFloat64;
    const ComputeType compute = is_double                      ? ComputeType::kFloat64
                                : p.a.dtype == DType::kFloat32 ? ComputeType::kFloat32Pedantic
                                                               : ComputeType::kFloat32;
    check(api, api.make_desc(&desc_, compute, is_double ? DataType::kFloat64 : DataType::kFloat32),
          "describe a product");
    set_transposed(DescAttribute::kTransposeA, p.b);
    set_transposed(DescAttribute::kTransposeB, p.a);
    // A pinned algorithm is asked for with as many rows as are usual: leading dimensions that are too small then grow.
    first_ = make_layout(p.b, {p.columns, p.depth}, p.batches);
    second_ = make_layout(p.a, {p.depth, rows}, p.batches);
    result_ = make_layout(p.c, {p.columns, rows}, p.batches);
  }
  ~Call() {
    for (const Layout layout : {first_, second_, result_})
      if (layout != nullptr) api_.destroy_layout(layout);
    if (desc_ != nullptr) api_.destroy_desc(desc_);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  Desc desc() const { return desc_; }
  Layout first() const { return first_; }
  Layout second() const { return second_; }
  Layout result() const { return result_; }

 private:
  struct Extents2 {
    std::int64_t rows, columns;  // as the library sees the matrix, before it is transposed
  };
  void set_transposed(DescAttribute attribute, const Matrix& matrix) {
    const Operation operation = matrix.is_transposed ? Operation::kTransposed : Operation::kPlain;
    check(api_, api_.set_desc(desc_, attribute, &operation, sizeof operation), "describe a product");
  }
  Layout make_layout(const Matrix& matrix, Extents2 extents, std::int64_t batches) {
    if (matrix.is_transposed) std::swap(extents.rows, extents.columns);
    Layout layout = nullptr;
    check(
        api_,
        api_.make_layout(&layout, data_type(matrix.dtype), static_cast<std::uint64_t>(extents.rows),
                         static_cast<std::uint64_t>(extents.columns), std::max(matrix.leading, extents.rows)),
        "describe a matrix");
    const auto count = static_cast<std::int32_t>(batches);
    if (batches != 1 &&
        (api_.set_layout(layout, LayoutAttribute::kBatchCount, &count, sizeof count) != Status::kSuccess ||
         api_.set_layout(layout, LayoutAttribute::kBatchStride, &matrix.batch_stride,
                         sizeof matrix.batch_stride) != Status::kSuccess)) {
      api_.destroy_layout(layout);
      throw KernelError("cuBLASLt cannot describe a batch of matrices");
    }
    return layout;
  }

  const Api& api_;
  Desc desc_ = nullptr;
  Layout first_ = nullptr, second_ = nullptr, result_ = nullptr;
};

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
  check(api,
        api.find_algorithms(handle_.get(), call.desc(), call.first(), call.second(), call.result(),
                            call.result(), made, kCandidates, candidates.data(), &found),
        "find an algorithm");
  for (int i = 0; i < found; ++i) {
    const Candidate& candidate = candidates[static_cast<std::size_t>(i)];
    if (candidate.state != Status::kSuccess || candidate.workspace_bytes > kWorkspaceBytes ||
        !adds_up_in_one_sequence(api, candidate.algorithm))
      continue;
    return {candidate.algorithm, describe(api, candidate.algorithm)};
  }
  throw KernelError(fmt::format("cuBLASLt has no algorithm for {} that adds up in one sequence",
                                shape_text(product, product.rows)));
}

const Products::Choice& Products::choose(const Product& product, const Call& call) {
  const Api& api = handle_.library().api;
  const auto own = [&]() -> const Choice& {
    const auto [found, is_new] = chosen_.try_emplace(class_of(product, false));
    if (is_new) {
      try {
        found->second = ask(product, call);
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
  if (found == chosen_.end())
    found = chosen_.emplace(name, ask(product, Call(api, product, product.usual_rows))).first;
  Candidate result{};
  const bool is_supported =
      api.check_algorithm(handle_.get(), call.desc(), call.first(), call.second(), call.result(),
                          call.result(), &found->second.bits, &result) == Status::kSuccess &&
      result.workspace_bytes <= kWorkspaceBytes;
  return is_supported ? found->second : own();
}

void Products::multiply(const Product& product, const Stream& stream, NodeId node) {
  const Api& api = handle_.library().api;
  const Call call(api, product, product.rows);
  const Choice& choice = choose(product, call);
  const bool is_double = product.a.dtype == DType::kFloat64;
  const double one = 1, zero = 0;
  const float one_float = 1, zero_float = 0;
  const void* alpha = is_double ? static_cast<const void*>(&one) : &one_float;
  const void* beta = is_double ? static_cast<const void*>(&zero) : &zero_float;
  check(api,
        api.multiply(handle_.get(), call.desc(), alpha, product.b.data, call.first(), product.a.data,
                     call.second(), beta, product.c.data, call.result(), product.c.data, call.result(),
                     &choice.bits, stream.workspace, kWorkspaceBytes, stream.native),
        "multiply");
  record_.push_back({node, shape_text(product, product.rows), choice.text});
}

std::vector<LibraryProduct> Products::take_record() {
  return std::exchange(record_, {});
}

}  // namespace epweave::replay::cublas
