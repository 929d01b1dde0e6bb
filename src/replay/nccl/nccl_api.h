// The part of NCCL that is used, as its library has it: types of its binary interface, and a table
// of functions that are looked up when it is loaded (nccl_library.h). nccl.h is not needed to
// build; where nvcc is, cuda/nccl_abi.cu checks these types against it. C++17.
//
// Another library with these functions can take NCCL's place: testing/socket_nccl.cc does, between
// processes without GPUs.
#pragma once

#include <climits>
#include <cstddef>

namespace epweave::replay::nccl {

inline constexpr int kAbiVersion = 22809;  // 2.28.9, whose header these types follow

enum class Result : int {
  kSuccess = 0,
  kUnhandledCudaError,
  kSystemError,
  kInternalError,
  kInvalidArgument,
  kInvalidUsage,
  kRemoteError,
  kInProgress,
};

struct UniqueId {
  char bytes[128];
};

struct CommTag;
using Comm = CommTag*;

inline constexpr int kByte = 1;  // ncclUint8
enum class Element : int {       // ncclDataType_t
  kInt8 = 0,
  kUint8,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFloat16,
  kFloat32,
  kFloat64,
  kBfloat16,
};
enum class Sum : int { kSum = 0, kProduct, kMax, kMin, kAvg };  // ncclRedOp_t

struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = kAbiVersion;
  int blocking = INT_MIN;  // INT_MIN and null: as NCCL likes
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
  int traffic_class = INT_MIN;
  const char* comm_name = nullptr;
  int collnet_enable = INT_MIN;
  int cta_policy = INT_MIN;
  int shrink_share = INT_MIN;
  int nvls_ctas = INT_MIN;
  int channels_per_net_peer = INT_MIN;
  int nvlink_centric_sched = INT_MIN;
};

struct Api {
  Result (*get_version)(int* version);
  Result (*get_unique_id)(UniqueId* id);
  Result (*init_rank)(Comm* comm, int ranks, UniqueId id, int rank, Config* config);
  Result (*split)(Comm comm, int color, int key, Comm* made, Config* config);
  Result (*get_async_error)(Comm comm, Result* error);
  Result (*finalize)(Comm comm);
  Result (*destroy)(Comm comm);
  Result (*abort)(Comm comm);
  const char* (*error_text)(Result result);
  const char* (*last_error)(Comm comm);
  Result (*group_start)();
  Result (*group_end)();
  Result (*send)(const void* data, std::size_t count, int type, int peer, Comm comm, void* stream);
  Result (*receive)(void* data, std::size_t count, int type, int peer, Comm comm, void* stream);
  Result (*all_gather)(const void* from, void* to, std::size_t count, int type, Comm comm, void* stream);
  Result (*broadcast)(const void* from, void* to, std::size_t count, int type, int root, Comm comm,
                      void* stream);
  Result (*reduce_scatter)(const void* from, void* to, std::size_t count, int type, int op, Comm comm,
                           void* stream);
  Result (*all_reduce)(const void* from, void* to, std::size_t count, int type, int op, Comm comm,
                       void* stream);
};

// Calls take(name, slot) for each function.
template <class Take>
void for_each_function(Api& api, const Take& take) {
  take("ncclGetVersion", &api.get_version);
  take("ncclGetUniqueId", &api.get_unique_id);
  take("ncclCommInitRankConfig", &api.init_rank);
  take("ncclCommSplit", &api.split);
  take("ncclCommGetAsyncError", &api.get_async_error);
  take("ncclCommFinalize", &api.finalize);
  take("ncclCommDestroy", &api.destroy);
  take("ncclCommAbort", &api.abort);
  take("ncclGetErrorString", &api.error_text);
  take("ncclGetLastError", &api.last_error);
  take("ncclGroupStart", &api.group_start);
  take("ncclGroupEnd", &api.group_end);
  take("ncclSend", &api.send);
  take("ncclRecv", &api.receive);
  take("ncclAllGather", &api.all_gather);
  take("ncclBroadcast", &api.broadcast);
  take("ncclReduceScatter", &api.reduce_scatter);
  take("ncclAllReduce", &api.all_reduce);
}

}  // namespace epweave::replay::nccl
