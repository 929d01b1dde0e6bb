// The part of cuBLASLt that is used, as its library has it: types of its binary interface, and a
// table of functions that are looked up when it is loaded (cublaslt_library.h). cublasLt.h is not
// needed to build; where nvcc is, cuda/cublaslt_abi.cu checks these types against it. C++17.
//
// Another library with these functions can take its place: testing/stand_in_cublaslt.cc does, on
// the emulated device.
#pragma once

#include <cstddef>
#include <cstdint>

namespace epweave::replay::cublas {

enum class Status : int { kSuccess = 0, kInvalidValue = 7, kNotSupported = 15 };  // others exist
enum class DataType : int { kFloat32 = 0, kFloat64 = 1, kFloat16 = 2, kBfloat16 = 14 };
enum class ComputeType : int { kFloat32 = 68, kFloat32Pedantic = 69, kFloat64 = 70 };
enum class Operation : std::int32_t { kPlain = 0, kTransposed = 1 };

enum class LayoutAttribute : int { kBatchCount = 5, kBatchStride = 6 };  // int32, int64
enum class DescAttribute : int { kTransposeA = 3, kTransposeB = 4 };     // int32
enum class PreferenceAttribute : int {
  kMaxWorkspace = 1,         // uint64, bytes
  kReductionSchemeMask = 3,  // uint32; 0: none
  kAlignmentA = 5,           // uint32, bytes
  kAlignmentB,
  kAlignmentC,
  kAlignmentD,
};
enum class ConfigAttribute : int {
  kId = 0,  // int32
  kTile,    // uint32, this one and those below
  kSplitK,  // int32
  kReductionScheme,
  kSwizzling,
  kCustomOption,
  kStages,
  kInnerShape,    // uint16
  kClusterShape,  // uint16
};

struct ContextTag;
struct DescTag;
struct LayoutTag;
struct PreferenceTag;
using Context = ContextTag*;
using Desc = DescTag*;
using Layout = LayoutTag*;
using Preference = PreferenceTag*;

// An algorithm with all its parameters. The bytes may be kept and used again with the same library.
struct AlgorithmBits {
  std::uint64_t data[8];
};
struct Candidate {
  AlgorithmBits algorithm;
  std::size_t workspace_bytes;
  Status state;
  float waves;
  int reserved[4];
};

struct Api {
  Status (*create)(Context* context);
  Status (*destroy)(Context context);
  std::size_t (*get_version)();
  const char* (*status_text)(Status status);
  Status (*make_desc)(Desc* desc, ComputeType compute, DataType scale);
  Status (*destroy_desc)(Desc desc);
  Status (*set_desc)(Desc desc, DescAttribute attribute, const void* value, std::size_t bytes);
  Status (*make_layout)(Layout* layout, DataType type, std::uint64_t rows, std::uint64_t columns,
                        std::int64_t leading);
  Status (*destroy_layout)(Layout layout);
  Status (*set_layout)(Layout layout, LayoutAttribute attribute, const void* value, std::size_t bytes);
  Status (*make_preference)(Preference* preference);
  Status (*destroy_preference)(Preference preference);
  Status (*set_preference)(Preference preference, PreferenceAttribute attribute, const void* value,
                           std::size_t bytes);
  Status (*find_algorithms)(Context context, Desc desc, Layout a, Layout b, Layout c, Layout d,
                            Preference preference, int asked, Candidate* candidates, int* found);
  Status (*check_algorithm)(Context context, Desc desc, Layout a, Layout b, Layout c, Layout d,
                            const AlgorithmBits* algorithm, Candidate* result);
  Status (*get_config)(const AlgorithmBits* algorithm, ConfigAttribute attribute, void* value,
                       std::size_t bytes, std::size_t* written);
  Status (*multiply)(Context context, Desc desc, const void* alpha, const void* a, Layout a_layout,
                     const void* b, Layout b_layout, const void* beta, const void* c, Layout c_layout,
                     void* d, Layout d_layout, const AlgorithmBits* algorithm, void* workspace,
                     std::size_t workspace_bytes, void* stream);
};

// Calls take(name, slot) for each function.
template <class Take>
void for_each_function(Api& api, const Take& take) {
  take("cublasLtCreate", &api.create);
  take("cublasLtDestroy", &api.destroy);
  take("cublasLtGetVersion", &api.get_version);
  take("cublasLtGetStatusString", &api.status_text);
  take("cublasLtMatmulDescCreate", &api.make_desc);
  take("cublasLtMatmulDescDestroy", &api.destroy_desc);
  take("cublasLtMatmulDescSetAttribute", &api.set_desc);
  take("cublasLtMatrixLayoutCreate", &api.make_layout);
  take("cublasLtMatrixLayoutDestroy", &api.destroy_layout);
  take("cublasLtMatrixLayoutSetAttribute", &api.set_layout);
  take("cublasLtMatmulPreferenceCreate", &api.make_preference);
  take("cublasLtMatmulPreferenceDestroy", &api.destroy_preference);
  take("cublasLtMatmulPreferenceSetAttribute", &api.set_preference);
  take("cublasLtMatmulAlgoGetHeuristic", &api.find_algorithms);
  take("cublasLtMatmulAlgoCheck", &api.check_algorithm);
  take("cublasLtMatmulAlgoConfigGetAttribute", &api.get_config);
  take("cublasLtMatmul", &api.multiply);
}

// A library that takes cuBLASLt's place on the emulated device has this symbol; cuBLASLt has not.
inline constexpr const char* kStandInMark = "epweave_stand_in_cublaslt";

}  // namespace epweave::replay::cublas
