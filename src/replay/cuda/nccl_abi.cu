// Checks at compile time that nccl/nccl_api.h is what NCCL's own header says. Makes no code.
#include <nccl.h>

#include <type_traits>

#include "replay/cuda/abi_check.h"
#include "replay/nccl/nccl_api.h"

namespace epweave::replay::nccl {
namespace {

static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));

#define EPWEAVE_SAME(ours, theirs)                                             \
  static_assert(offsetof(Config, ours) == offsetof(ncclConfig_t, theirs) &&    \
                    std::is_same<decltype(Config::ours), decltype(ncclConfig_t::theirs)>::value, \
                "the field differs")
EPWEAVE_SAME(size, size);
EPWEAVE_SAME(magic, magic);
EPWEAVE_SAME(version, version);
EPWEAVE_SAME(blocking, blocking);
EPWEAVE_SAME(cga_cluster_size, cgaClusterSize);
EPWEAVE_SAME(min_ctas, minCTAs);
EPWEAVE_SAME(max_ctas, maxCTAs);
EPWEAVE_SAME(net_name, netName);
EPWEAVE_SAME(split_share, splitShare);
EPWEAVE_SAME(traffic_class, trafficClass);
EPWEAVE_SAME(comm_name, commName);
EPWEAVE_SAME(collnet_enable, collnetEnable);
EPWEAVE_SAME(cta_policy, CTAPolicy);
EPWEAVE_SAME(shrink_share, shrinkShare);
EPWEAVE_SAME(nvls_ctas, nvlsCTAs);
EPWEAVE_SAME(channels_per_net_peer, nChannelsPerNetPeer);
EPWEAVE_SAME(nvlink_centric_sched, nvlinkCentricSched);
#undef EPWEAVE_SAME
static_assert(NCCL_CONFIG_UNDEF_INT == INT_MIN);
// A newer header may have more fields behind these; the size that is given says which are there.
static_assert(sizeof(Config) <= sizeof(ncclConfig_t));
#if NCCL_VERSION_CODE == 22809
static_assert(kAbiVersion == NCCL_VERSION_CODE && sizeof(Config) == sizeof(ncclConfig_t));
#endif

static_assert(static_cast<int>(Result::kSuccess) == ncclSuccess);
static_assert(static_cast<int>(Result::kUnhandledCudaError) == ncclUnhandledCudaError);
static_assert(static_cast<int>(Result::kSystemError) == ncclSystemError);
static_assert(static_cast<int>(Result::kInternalError) == ncclInternalError);
static_assert(static_cast<int>(Result::kInvalidArgument) == ncclInvalidArgument);
static_assert(static_cast<int>(Result::kInvalidUsage) == ncclInvalidUsage);
static_assert(static_cast<int>(Result::kRemoteError) == ncclRemoteError);
static_assert(static_cast<int>(Result::kInProgress) == ncclInProgress);
static_assert(kByte == ncclUint8);
static_assert(static_cast<int>(Element::kInt8) == ncclInt8);
static_assert(static_cast<int>(Element::kUint8) == ncclUint8);
static_assert(static_cast<int>(Element::kInt32) == ncclInt32);
static_assert(static_cast<int>(Element::kUint32) == ncclUint32);
static_assert(static_cast<int>(Element::kInt64) == ncclInt64);
static_assert(static_cast<int>(Element::kUint64) == ncclUint64);
static_assert(static_cast<int>(Element::kFloat16) == ncclFloat16);
static_assert(static_cast<int>(Element::kFloat32) == ncclFloat32);
static_assert(static_cast<int>(Element::kFloat64) == ncclFloat64);
static_assert(static_cast<int>(Element::kBfloat16) == ncclBfloat16);
static_assert(static_cast<int>(Sum::kSum) == ncclSum);
static_assert(static_cast<int>(Sum::kProduct) == ncclProd);
static_assert(static_cast<int>(Sum::kMax) == ncclMax);
static_assert(static_cast<int>(Sum::kMin) == ncclMin);
static_assert(static_cast<int>(Sum::kAvg) == ncclAvg);

#define EPWEAVE_ALIKE(ours, theirs) static_assert(abi::AreAlike<decltype(Api::ours), decltype(&theirs)>::value)
EPWEAVE_ALIKE(get_version, ncclGetVersion);
EPWEAVE_ALIKE(get_unique_id, ncclGetUniqueId);
EPWEAVE_ALIKE(init_rank, ncclCommInitRankConfig);
EPWEAVE_ALIKE(split, ncclCommSplit);
EPWEAVE_ALIKE(get_async_error, ncclCommGetAsyncError);
EPWEAVE_ALIKE(finalize, ncclCommFinalize);
EPWEAVE_ALIKE(destroy, ncclCommDestroy);
EPWEAVE_ALIKE(abort, ncclCommAbort);
EPWEAVE_ALIKE(error_text, ncclGetErrorString);
EPWEAVE_ALIKE(last_error, ncclGetLastError);
EPWEAVE_ALIKE(group_start, ncclGroupStart);
EPWEAVE_ALIKE(group_end, ncclGroupEnd);
EPWEAVE_ALIKE(send, ncclSend);
EPWEAVE_ALIKE(receive, ncclRecv);
EPWEAVE_ALIKE(all_gather, ncclAllGather);
EPWEAVE_ALIKE(broadcast, ncclBroadcast);
EPWEAVE_ALIKE(reduce_scatter, ncclReduceScatter);
EPWEAVE_ALIKE(all_reduce, ncclAllReduce);
#undef EPWEAVE_ALIKE

}  // namespace
}  // namespace epweave::replay::nccl
