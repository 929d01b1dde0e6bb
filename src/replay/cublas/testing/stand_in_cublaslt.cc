// Takes cuBLASLt's place on the emulated device, for tests: loaded where EPWEAVE_CUBLASLT names it.
//
// It computes what cuBLASLt does, queued on the stream that it is given. Its algorithms are tiles 1
// to 3, which add up the reduced index in as many interleaved chains, so that bits show which
// algorithm ran. Which one it proposes depends on the number of rows, as a library's heuristic
// does:
//
//   rows    up to 16   up to 64   more
//   tile    1          2          3        not offered again for fewer than 8 rows: a pinned algorithm is refused
//
// Before these it proposes algorithms that nobody who wants one order of additions may take: one
// that splits the reduced index, and, unless the mask forbids it, one with a reduction scheme; of
// depth 59 also one that does not say whether it splits and one that splits by -1. Of depth 61 it
// has no algorithm. It checks what the library would: compute types, leading dimensions, alignments
// that were promised, the workspace.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "replay/cublas/cublaslt_api.h"
#include "replay/kernels/device/emulated.h"
#include "replay/kernels/math/elements.h"

namespace {

using namespace epweave::replay::cublas;
namespace math = epweave::math;

struct LayoutData {
  DataType type;
  std::int64_t rows, columns, leading, batch_stride = 0;
  std::int32_t batches = 1;
};
struct DescData {
  ComputeType compute;
  bool is_transposed_a = false, is_transposed_b = false;
};
struct PreferenceData {
  std::uint64_t workspace = 0;
  std::uint32_t mask = 7;
  std::uint32_t alignments[4] = {256, 256, 256, 256};
};
constexpr std::size_t kNeededWorkspace = 1024;

// In AlgorithmBits::data.
enum Field { kTileField, kSplitField, kSchemeField, kAlignmentField };
constexpr std::uint64_t kSilent = 77;  // a split that is not told
AlgorithmBits make_algorithm(std::uint64_t tile, std::uint64_t split, std::uint64_t scheme) {
  return {{tile, split, scheme, 0, 0, 0, 0, 0}};
}

LayoutData& of(Layout layout) {
  return *reinterpret_cast<LayoutData*>(layout);
}
DescData& of(Desc desc) {
  return *reinterpret_cast<DescData*>(desc);
}
PreferenceData& of(Preference preference) {
  return *reinterpret_cast<PreferenceData*>(preference);
}

math::Stored stored(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return math::Stored::kFloat32;
    case DataType::kFloat64:
      return math::Stored::kFloat64;
    case DataType::kFloat16:
      return math::Stored::kFloat16;
    case DataType::kBfloat16:
      break;
  }
  return math::Stored::kBfloat16;
}

bool is_sound(const LayoutData& layout) {
  return layout.rows > 0 && layout.columns > 0 && layout.leading >= layout.rows && layout.batches > 0;
}
bool is_compute_type_right(const DescData& desc, DataType input) {
  switch (input) {
    case DataType::kFloat32:
      return desc.compute == ComputeType::kFloat32Pedantic;
    case DataType::kFloat64:
      return desc.compute == ComputeType::kFloat64;
    default:
      return desc.compute == ComputeType::kFloat32;
  }
}

// Everything that a queued product needs.
struct Work {
  DescData desc;
  LayoutData a, b, d;
  const void *from_a, *from_b;
  void* to;
  std::int64_t chains;

  template <class C>
  void run() const {
    const std::int64_t depth = desc.is_transposed_a ? a.rows : a.columns;
    for (std::int64_t batch = 0; batch < d.batches; ++batch)
      for (std::int64_t j = 0; j < d.columns; ++j)
        for (std::int64_t i = 0; i < d.rows; ++i) {
          C sums[3] = {};
          for (std::int64_t k = 0; k < depth; ++k) {
            const std::int64_t at_a = desc.is_transposed_a ? i * a.leading + k : k * a.leading + i;
            const std::int64_t at_b = desc.is_transposed_b ? k * b.leading + j : j * b.leading + k;
            const C x = math::load_element<C>(from_a, stored(a.type), batch * a.batch_stride + at_a);
            const C y = math::load_element<C>(from_b, stored(b.type), batch * b.batch_stride + at_b);
            sums[k % chains] += x * y;
          }
          math::store_element(to, stored(d.type), batch * d.batch_stride + j * d.leading + i,
                              (sums[0] + sums[1]) + sums[2]);
        }
  }
};

template <class T>
Status make(T** made, void* data) {
  *made = static_cast<T*>(data);
  return Status::kSuccess;
}
template <class Field>
Status set(Field& field, const void* value, std::size_t bytes) {
  if (bytes != sizeof field) return Status::kInvalidValue;
  std::memcpy(&field, value, bytes);
  return Status::kSuccess;
}
Status set_transposed(bool& field, const void* value, std::size_t bytes) {
  std::int32_t operation = 0;
  const Status status = set(operation, value, bytes);
  field = operation == static_cast<std::int32_t>(Operation::kTransposed);
  return status;
}
template <class T>
Status give(T number, void* value, std::size_t bytes, std::size_t* written) {
  if (bytes != sizeof number) return Status::kInvalidValue;
  std::memcpy(value, &number, bytes);
  *written = bytes;
  return Status::kSuccess;
}
bool is_aligned(const void* data, std::uint64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}

}  // namespace

#define EPWEAVE_EXPORT extern "C" __attribute__((visibility("default")))

extern "C" {
__attribute__((visibility("default"))) int epweave_stand_in_cublaslt = 1;
}

EPWEAVE_EXPORT Status cublasLtCreate(Context* context) {
  return make(context, new int);
}
EPWEAVE_EXPORT Status cublasLtDestroy(Context context) {
  delete reinterpret_cast<int*>(context);
  return Status::kSuccess;
}
EPWEAVE_EXPORT std::size_t cublasLtGetVersion() {
  return 130100;
}
EPWEAVE_EXPORT const char* cublasLtGetStatusString(Status status) {
  return status == Status::kInvalidValue ? "an invalid value" : "not supported";
}
EPWEAVE_EXPORT Status cublasLtMatmulDescCreate(Desc* desc, ComputeType compute, DataType) {
  return make(desc, new DescData{compute});
}
EPWEAVE_EXPORT Status cublasLtMatmulDescDestroy(Desc desc) {
  delete &of(desc);
  return Status::kSuccess;
}
EPWEAVE_EXPORT Status cublasLtMatmulDescSetAttribute(Desc desc, DescAttribute attribute, const void* value,
                                                     std::size_t bytes) {
  return set_transposed(
      attribute == DescAttribute::kTransposeA ? of(desc).is_transposed_a : of(desc).is_transposed_b, value,
      bytes);
}
EPWEAVE_EXPORT Status cublasLtMatrixLayoutCreate(Layout* layout, DataType type, std::uint64_t rows,
                                                 std::uint64_t columns, std::int64_t leading) {
  return make(layout, new LayoutData{type, static_cast<std::int64_t>(rows),
                                     static_cast<std::int64_t>(columns), leading});
}
EPWEAVE_EXPORT Status cublasLtMatrixLayoutDestroy(Layout layout) {
  delete &of(layout);
  return Status::kSuccess;
}
EPWEAVE_EXPORT Status cublasLtMatrixLayoutSetAttribute(Layout layout, LayoutAttribute attribute,
                                                       const void* value, std::size_t bytes) {
  if (attribute == LayoutAttribute::kBatchCount) return set(of(layout).batches, value, bytes);
  return set(of(layout).batch_stride, value, bytes);
}
EPWEAVE_EXPORT Status cublasLtMatmulPreferenceCreate(Preference* preference) {
  return make(preference, new PreferenceData);
}
EPWEAVE_EXPORT Status cublasLtMatmulPreferenceDestroy(Preference preference) {
  delete &of(preference);
  return Status::kSuccess;
}
EPWEAVE_EXPORT Status cublasLtMatmulPreferenceSetAttribute(Preference preference,
                                                           PreferenceAttribute attribute, const void* value,
                                                           std::size_t bytes) {
  PreferenceData& data = of(preference);
  switch (attribute) {
    case PreferenceAttribute::kMaxWorkspace:
      return set(data.workspace, value, bytes);
    case PreferenceAttribute::kReductionSchemeMask:
      return set(data.mask, value, bytes);
    default:
      return set(
          data.alignments[static_cast<int>(attribute) - static_cast<int>(PreferenceAttribute::kAlignmentA)],
          value, bytes);
  }
}

EPWEAVE_EXPORT Status cublasLtMatmulAlgoGetHeuristic(Context, Desc desc, Layout a, Layout b, Layout, Layout d,
                                                     Preference preference, int asked, Candidate* candidates,
                                                     int* found) {
  if (!is_sound(of(a)) || !is_sound(of(b)) || !is_sound(of(d)) ||
      !is_compute_type_right(of(desc), of(a).type))
    return Status::kInvalidValue;
  const PreferenceData& data = of(preference);
  const std::int64_t depth = of(desc).is_transposed_a ? of(a).rows : of(a).columns;
  if (depth == 61) return Status::kNotSupported;
  std::vector<AlgorithmBits> proposals;
  if (depth == 59) {
    proposals.push_back(make_algorithm(2, kSilent, 0));
    proposals.push_back(make_algorithm(2, static_cast<std::uint64_t>(-1), 0));
  }
  if ((data.mask & 1) != 0) proposals.push_back(make_algorithm(1, 4, 1));
  proposals.push_back(make_algorithm(2, 2, 0));
  const std::int64_t rows = of(d).columns;  // the caller's rows: it asks for the transposed product
  proposals.push_back(make_algorithm(rows <= 16 ? 1 : rows <= 64 ? 2 : 3, 1, 0));
  *found = 0;
  for (AlgorithmBits& proposal : proposals) {
    proposal.data[kAlignmentField] = *std::min_element(data.alignments, data.alignments + 4);
    if (*found < asked && data.workspace >= kNeededWorkspace)
      candidates[(*found)++] = {proposal, kNeededWorkspace, Status::kSuccess, 1.0f, {}};
  }
  return Status::kSuccess;
}

EPWEAVE_EXPORT Status cublasLtMatmulAlgoCheck(Context, Desc, Layout, Layout, Layout, Layout d,
                                              const AlgorithmBits* algorithm, Candidate* result) {
  if (algorithm->data[kTileField] == 3 && of(d).columns < 8) return Status::kNotSupported;
  *result = {*algorithm, kNeededWorkspace, Status::kSuccess, 1.0f, {}};
  return Status::kSuccess;
}

EPWEAVE_EXPORT Status cublasLtMatmulAlgoConfigGetAttribute(const AlgorithmBits* algorithm,
                                                           ConfigAttribute attribute, void* value,
                                                           std::size_t bytes, std::size_t* written) {
  switch (attribute) {
    case ConfigAttribute::kId:
      return give(std::int32_t{66}, value, bytes, written);
    case ConfigAttribute::kTile:
      return give(static_cast<std::uint32_t>(algorithm->data[kTileField]), value, bytes, written);
    case ConfigAttribute::kSplitK:
      if (algorithm->data[kSplitField] == kSilent) return Status::kNotSupported;
      return give(static_cast<std::int32_t>(algorithm->data[kSplitField]), value, bytes, written);
    case ConfigAttribute::kReductionScheme:
      return give(static_cast<std::uint32_t>(algorithm->data[kSchemeField]), value, bytes, written);
    case ConfigAttribute::kInnerShape:
    case ConfigAttribute::kClusterShape:
      return give(std::uint16_t{0}, value, bytes, written);
    default:
      return give(std::uint32_t{0}, value, bytes, written);
  }
}

EPWEAVE_EXPORT Status cublasLtMatmul(Context, Desc desc, const void*, const void* a, Layout a_layout,
                                     const void* b, Layout b_layout, const void*, const void*, Layout,
                                     void* d, Layout d_layout, const AlgorithmBits* algorithm,
                                     void* workspace, std::size_t workspace_bytes, void* stream) {
  const std::uint64_t alignment = algorithm->data[kAlignmentField];
  if (algorithm->data[kSplitField] != 1 || algorithm->data[kSchemeField] != 0 || workspace == nullptr ||
      workspace_bytes < kNeededWorkspace || !is_aligned(a, alignment) || !is_aligned(b, alignment) ||
      !is_aligned(d, alignment) || !is_aligned(workspace, 16))
    return Status::kInvalidValue;
  auto* work = new Work{of(desc),
                        of(a_layout),
                        of(b_layout),
                        of(d_layout),
                        a,
                        b,
                        d,
                        static_cast<std::int64_t>(algorithm->data[kTileField])};
  auto* queue = static_cast<epweave::replay::device::EmulatedStream*>(stream);
  queue->enqueue(queue, {[](void* argument) {
                           const Work& queued = *static_cast<Work*>(argument);
                           if (queued.a.type == DataType::kFloat64)
                             queued.run<double>();
                           else
                             queued.run<float>();
                         },
                         [](void* argument) { delete static_cast<Work*>(argument); }, work});
  return Status::kSuccess;
}
