// Checks at compile time that cublas/cublaslt_api.h is what cuBLASLt's own header says. Makes no
// code.
#include <cublasLt.h>

#include "replay/cublas/cublaslt_api.h"
#include "replay/cuda/abi_check.h"

namespace epweave::replay::cublas {
namespace {

static_assert(static_cast<int>(Status::kSuccess) == CUBLAS_STATUS_SUCCESS);
static_assert(static_cast<int>(Status::kInvalidValue) == CUBLAS_STATUS_INVALID_VALUE);
static_assert(static_cast<int>(Status::kNotSupported) == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(static_cast<int>(DataType::kFloat32) == CUDA_R_32F);
static_assert(static_cast<int>(DataType::kFloat64) == CUDA_R_64F);
static_assert(static_cast<int>(DataType::kFloat16) == CUDA_R_16F);
static_assert(static_cast<int>(DataType::kBfloat16) == CUDA_R_16BF);
static_assert(static_cast<int>(ComputeType::kFloat32) == CUBLAS_COMPUTE_32F);
static_assert(static_cast<int>(ComputeType::kFloat32Pedantic) == CUBLAS_COMPUTE_32F_PEDANTIC);
static_assert(static_cast<int>(ComputeType::kFloat64) == CUBLAS_COMPUTE_64F);
static_assert(static_cast<int>(Operation::kPlain) == CUBLAS_OP_N);
static_assert(static_cast<int>(Operation::kTransposed) == CUBLAS_OP_T);
static_assert(static_cast<int>(LayoutAttribute::kBatchCount) == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
static_assert(static_cast<int>(LayoutAttribute::kBatchStride) == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
static_assert(static_cast<int>(DescAttribute::kTransposeA) == CUBLASLT_MATMUL_DESC_TRANSA);
static_assert(static_cast<int>(DescAttribute::kTransposeB) == CUBLASLT_MATMUL_DESC_TRANSB);
#define EPWEAVE_SAME(ours, theirs) \
  static_assert(static_cast<int>(PreferenceAttribute::ours) == CUBLASLT_MATMUL_PREF_##theirs)
EPWEAVE_SAME(kMaxWorkspace, MAX_WORKSPACE_BYTES);
EPWEAVE_SAME(kReductionSchemeMask, REDUCTION_SCHEME_MASK);
EPWEAVE_SAME(kAlignmentA, MIN_ALIGNMENT_A_BYTES);
EPWEAVE_SAME(kAlignmentB, MIN_ALIGNMENT_B_BYTES);
EPWEAVE_SAME(kAlignmentC, MIN_ALIGNMENT_C_BYTES);
EPWEAVE_SAME(kAlignmentD, MIN_ALIGNMENT_D_BYTES);
#undef EPWEAVE_SAME
#define EPWEAVE_SAME(ours, theirs) \
  static_assert(static_cast<int>(ConfigAttribute::ours) == CUBLASLT_ALGO_CONFIG_##theirs)
EPWEAVE_SAME(kId, ID);
EPWEAVE_SAME(kTile, TILE_ID);
EPWEAVE_SAME(kSplitK, SPLITK_NUM);
EPWEAVE_SAME(kReductionScheme, REDUCTION_SCHEME);
EPWEAVE_SAME(kSwizzling, CTA_SWIZZLING);
EPWEAVE_SAME(kCustomOption, CUSTOM_OPTION);
EPWEAVE_SAME(kStages, STAGES_ID);
EPWEAVE_SAME(kInnerShape, INNER_SHAPE_ID);
EPWEAVE_SAME(kClusterShape, CLUSTER_SHAPE_ID);
#undef EPWEAVE_SAME
static_assert(CUBLASLT_REDUCTION_SCHEME_NONE == 0);

static_assert(sizeof(AlgorithmBits) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(Candidate) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(Candidate, algorithm) == offsetof(cublasLtMatmulHeuristicResult_t, algo));
static_assert(offsetof(Candidate, workspace_bytes) == offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(Candidate, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(offsetof(Candidate, waves) == offsetof(cublasLtMatmulHeuristicResult_t, wavesCount));

#define EPWEAVE_ALIKE(ours, theirs) static_assert(abi::AreAlike<decltype(Api::ours), decltype(&theirs)>::value)
EPWEAVE_ALIKE(create, cublasLtCreate);
EPWEAVE_ALIKE(destroy, cublasLtDestroy);
EPWEAVE_ALIKE(get_version, cublasLtGetVersion);
EPWEAVE_ALIKE(status_text, cublasLtGetStatusString);
EPWEAVE_ALIKE(make_desc, cublasLtMatmulDescCreate);
EPWEAVE_ALIKE(destroy_desc, cublasLtMatmulDescDestroy);
EPWEAVE_ALIKE(set_desc, cublasLtMatmulDescSetAttribute);
EPWEAVE_ALIKE(make_layout, cublasLtMatrixLayoutCreate);
EPWEAVE_ALIKE(destroy_layout, cublasLtMatrixLayoutDestroy);
EPWEAVE_ALIKE(set_layout, cublasLtMatrixLayoutSetAttribute);
EPWEAVE_ALIKE(make_preference, cublasLtMatmulPreferenceCreate);
EPWEAVE_ALIKE(destroy_preference, cublasLtMatmulPreferenceDestroy);
EPWEAVE_ALIKE(set_preference, cublasLtMatmulPreferenceSetAttribute);
EPWEAVE_ALIKE(find_algorithms, cublasLtMatmulAlgoGetHeuristic);
EPWEAVE_ALIKE(check_algorithm, cublasLtMatmulAlgoCheck);
EPWEAVE_ALIKE(get_config, cublasLtMatmulAlgoConfigGetAttribute);
EPWEAVE_ALIKE(multiply, cublasLtMatmul);
#undef EPWEAVE_ALIKE

}  // namespace
}  // namespace epweave::replay::cublas
