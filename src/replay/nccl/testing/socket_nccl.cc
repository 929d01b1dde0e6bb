// Test only: the part of NCCL that is used (nccl_api.h), between processes of one machine over Unix
// sockets, for memory and streams of the emulated device. EPWEAVE_NCCL names it in place of
// libnccl.so.2.
//
// As in NCCL, calls queue work on a stream, communicators are non-blocking, a peer that ends is an
// asynchronous error, and a rank whose peer sends nothing waits until it is aborted.
// EPWEAVE_SOCKET_NCCL makes faults: "hang:N" lets the work after the first N groups wait for ever,
// "error:N" makes it fail, "flip:N" changes one bit of what the next one brings, "progress:N"
// leaves the calls after the first N in progress, which queue nothing.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "replay/kernels/device/emulated.h"
#include "replay/nccl/testing/ring_sum.h"
#include "replay/nccl/testing/socket_communicator.h"

namespace epweave::replay::nccl {
namespace {

std::mutex comms_mutex;
std::map<Comm, std::shared_ptr<CommTag>> comms;
thread_local std::string last_error_text;
std::string shared_error_text;

Comm keep(std::shared_ptr<CommTag> comm) {
  const std::lock_guard lock(comms_mutex);
  Comm key = comm.get();
  comms[key] = std::move(comm);
  return key;
}

std::shared_ptr<CommTag> find(Comm comm) {
  const std::lock_guard lock(comms_mutex);
  const auto found = comms.find(comm);
  return found == comms.end() ? nullptr : found->second;
}

void fail(CommTag& comm, Result result, const std::string& text) {
  {
    const std::lock_guard lock(comms_mutex);
    shared_error_text = text;
  }
  comm.state = result;
}

// As NCCL does where NCCL_DEBUG asks for it.
void log_setting(const char* name) {
  const char *path = std::getenv("NCCL_DEBUG_FILE"), *value = std::getenv(name);
  if (path == nullptr || value == nullptr) return;
  std::ofstream(path, std::ios::app) << "host:1:1 [0] NCCL INFO " << name << " set by environment to "
                                     << value << ".\n";
}

// --- work on streams ---

struct Move {
  bool is_send = false;
  char* data = nullptr;
  std::size_t bytes = 0, done = 0;
  int peer = 0;
};

struct Work {
  std::shared_ptr<CommTag> comm;
  void* stream = nullptr;
  std::vector<Move> moves;
  void* copy_to = nullptr;  // this rank's own part
  const void* copy_from = nullptr;
  std::size_t copy_bytes = 0;
  std::vector<char> received;  // what is summed up after the moves, of the other ranks
  std::vector<const void*> summands;
  void* sum_to = nullptr;
  std::size_t sum_count = 0;
  Element sum_type = Element::kFloat32;
  Sum sum_op = Sum::kSum;
};

thread_local int group_depth = 0;
thread_local std::vector<std::unique_ptr<Work>> group_work;

// "hang:3" -> 3 for "hang"; -1 where there is no such fault.
long fault_after(const char* kind) {
  const char* fault = std::getenv("EPWEAVE_SOCKET_NCCL");
  if (fault == nullptr || std::strncmp(fault, kind, std::strlen(kind)) != 0) return -1;
  return std::strtol(std::strchr(fault, ':') + 1, nullptr, 10);
}

// The first unfinished move on each connection and direction makes progress, so that moves stay in
// order.
bool advance(Work& work) {
  CommTag& comm = *work.comm;
  std::vector<pollfd> wanted;
  std::vector<Move*> moves;
  for (Move& move : work.moves) {
    const bool is_first = std::none_of(moves.begin(), moves.end(), [&](const Move* other) {
      return other->peer == move.peer && other->is_send == move.is_send;
    });
    if (move.done == move.bytes || !is_first) continue;
    moves.push_back(&move);
    wanted.push_back({comm.peers[static_cast<std::size_t>(move.peer)],
                      static_cast<short>(move.is_send ? POLLOUT : POLLIN), 0});
  }
  if (moves.empty()) return false;
  poll(wanted.data(), wanted.size(), static_cast<int>(kLook.count()));
  for (std::size_t i = 0; i < moves.size(); ++i) {
    if (wanted[i].revents == 0) continue;
    Move& move = *moves[i];
    char* at = move.data + move.done;
    const std::size_t left = move.bytes - move.done;
    const ssize_t moved = move.is_send ? send(wanted[i].fd, at, left, MSG_DONTWAIT | MSG_NOSIGNAL)
                                       : recv(wanted[i].fd, at, left, MSG_DONTWAIT);
    if (moved < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (moved <= 0) {
      fail(comm, Result::kRemoteError, "rank " + std::to_string(move.peer) + " has closed its connection");
      return false;
    }
    move.done += static_cast<std::size_t>(moved);
  }
  return true;
}

void flip_received_bit(const Work& work) {
  for (const Move& move : work.moves)
    if (!move.is_send && move.bytes != 0) {
      move.data[0] ^= 1;
      return;
    }
}

void run(void* argument) {
  static std::atomic<long> groups = 0;
  Work& work = *static_cast<Work*>(argument);
  CommTag& comm = *work.comm;
  const long number = groups++;
  if (const long after = fault_after("hang"); after >= 0 && number >= after)
    while (!comm.is_aborted) std::this_thread::sleep_for(kLook);
  if (const long after = fault_after("error"); after >= 0 && number >= after)
    return fail(comm, Result::kInternalError, "a fault that was asked for");
  if (work.copy_bytes != 0 && work.copy_to != work.copy_from)
    std::memcpy(work.copy_to, work.copy_from, work.copy_bytes);
  while (!comm.is_aborted && comm.state != Result::kRemoteError && advance(work)) {
  }
  if (number == fault_after("flip")) flip_received_bit(work);
  if (work.sum_to != nullptr)
    sum_along_ring(work.summands, work.sum_to, work.sum_count, work.sum_type, work.sum_op);
}
void destroy(void* work) {
  delete static_cast<Work*>(work);
}

Work& work_for(Comm comm, void* stream) {
  for (const auto& work : group_work)
    if (work->comm.get() == comm && work->stream == stream) return *work;
  group_work.push_back(std::make_unique<Work>());
  group_work.back()->comm = find(comm);
  group_work.back()->stream = stream;
  return *group_work.back();
}

Result queue_group() {
  static std::atomic<long> groups = 0;
  if (const long after = fault_after("progress"), number = groups++; after >= 0 && number >= after) {
    for (auto& work : group_work) work->comm->polls_in_progress = std::numeric_limits<int>::max();
    group_work.clear();
    return Result::kInProgress;
  }
  for (auto& work : group_work) {
    work->comm->polls_in_progress = 2;
    auto* stream = static_cast<device::EmulatedStream*>(work->stream);
    stream->enqueue(stream, {run, destroy, work.release()});
  }
  group_work.clear();
  return Result::kInProgress;
}

Result add_move(Comm comm, void* stream, const Move& move) {
  ++group_depth;
  work_for(comm, stream).moves.push_back(move);
  return --group_depth == 0 ? queue_group() : Result::kSuccess;
}

// The slices of the ranks are `stride` bytes apart: 0 where all take all of it.
struct Reduce {
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t count = 0, stride = 0;
  Element type = Element::kFloat32;
  Sum op = Sum::kSum;
};
// Every rank is sent what it is to add up.
Result add_sum(Comm comm, void* stream, const Reduce& reduce) {
  const std::shared_ptr<CommTag> tag = find(comm);
  const std::size_t bytes = reduce.count * bytes_of(reduce.type);
  const auto slice = [&](int rank) {
    return static_cast<char*>(const_cast<void*>(reduce.from)) +
           static_cast<std::size_t>(rank) * reduce.stride;
  };
  ++group_depth;
  Work& work = work_for(comm, stream);
  work.received.resize(bytes * static_cast<std::size_t>(tag->size));
  for (int rank = 0; rank < tag->size; ++rank) {
    char* part = work.received.data() + bytes * static_cast<std::size_t>(rank);
    work.summands.push_back(rank == tag->rank ? slice(rank) : part);
    if (rank == tag->rank) continue;
    work.moves.push_back({true, slice(rank), bytes, 0, rank});
    work.moves.push_back({false, part, bytes, 0, rank});
  }
  work.sum_to = reduce.to;
  work.sum_count = reduce.count;
  work.sum_type = reduce.type;
  work.sum_op = reduce.op;
  return --group_depth == 0 ? queue_group() : Result::kSuccess;
}

void stop_helper(CommTag& comm) {
  if (comm.helper.joinable()) comm.helper.join();
}

Result forget(Comm comm) {
  const std::shared_ptr<CommTag> found = find(comm);
  if (found == nullptr) return Result::kInvalidArgument;
  stop_helper(*found);
  const std::lock_guard lock(comms_mutex);
  comms.erase(comm);
  return Result::kSuccess;
}

}  // namespace
}  // namespace epweave::replay::nccl

using namespace epweave::replay::nccl;

extern "C" {

Result ncclGetVersion(int* version) {
  *version = kAbiVersion;
  return Result::kSuccess;
}

Result ncclGetUniqueId(UniqueId* id) {
  std::random_device random;
  std::memset(id, 0, sizeof *id);
  const std::string name = "epweave-" + std::to_string(random()) + "-" + std::to_string(random());
  std::memcpy(id->bytes, name.data(), name.size());
  return Result::kSuccess;
}

Result ncclCommInitRankConfig(Comm* comm, int ranks, UniqueId id, int rank, Config* config) {
  if (config->blocking != 0 || config->magic != 0xcafebeef || config->size != sizeof(Config))
    return Result::kInvalidArgument;
  log_setting("NCCL_ALGO");
  log_setting("NCCL_MIN_CTAS");
  auto made = std::make_shared<CommTag>();
  made->name = id.bytes;
  made->rank = rank;
  made->size = ranks;
  made->helper = std::thread([tag = made.get()] {
    if (connect_all(*tag))
      tag->state = Result::kSuccess;
    else
      fail(*tag, Result::kSystemError, "the ranks cannot be connected");
  });
  *comm = keep(std::move(made));
  return Result::kInProgress;
}

// As NCCL 2.28.9: a non-blocking split says success before its thread has written the communicator.
Result ncclCommSplit(Comm comm, int color, int key, Comm* made, Config*) {
  const std::shared_ptr<CommTag> parent = find(comm);
  if (parent == nullptr || parent->state != Result::kSuccess) return Result::kInvalidArgument;
  stop_helper(*parent);
  parent->state = Result::kInProgress;
  const int number = parent->splits++;
  parent->helper = std::thread([tag = parent.get(), color, key, number, made] {
    std::shared_ptr<CommTag> child = split(*tag, {color, key}, number);
    if (child == nullptr) return fail(*tag, Result::kSystemError, "the ranks cannot be connected");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic_ref(*made).store(keep(std::move(child)), std::memory_order_release);
    tag->state = Result::kSuccess;
  });
  return Result::kSuccess;
}

Result ncclCommGetAsyncError(Comm comm, Result* error) {
  const std::shared_ptr<CommTag> found = find(comm);
  if (found == nullptr) return Result::kInvalidArgument;
  *error = found->state;
  if (*error == Result::kSuccess && found->polls_in_progress > 0 && found->polls_in_progress-- > 0)
    *error = Result::kInProgress;
  return Result::kSuccess;
}

Result ncclCommFinalize(Comm) {
  return Result::kSuccess;
}

Result ncclCommDestroy(Comm comm) {
  return forget(comm);
}

Result ncclCommAbort(Comm comm) {
  if (const std::shared_ptr<CommTag> found = find(comm)) found->is_aborted = true;
  return forget(comm);
}

const char* ncclGetErrorString(Result result) {
  switch (result) {
    case Result::kSuccess:
      return "no error";
    case Result::kSystemError:
      return "unhandled system error";
    case Result::kInternalError:
      return "internal error";
    case Result::kRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "another error";
  }
}

const char* ncclGetLastError(Comm) {
  const std::lock_guard lock(comms_mutex);
  last_error_text = shared_error_text;
  return last_error_text.c_str();
}

Result ncclGroupStart() {
  ++group_depth;
  return Result::kSuccess;
}

Result ncclGroupEnd() {
  return --group_depth == 0 ? queue_group() : Result::kSuccess;
}

Result ncclSend(const void* data, std::size_t count, int type, int peer, Comm comm, void* stream) {
  if (type != kByte) return Result::kInvalidArgument;
  return add_move(comm, stream, {true, static_cast<char*>(const_cast<void*>(data)), count, 0, peer});
}

Result ncclRecv(void* data, std::size_t count, int type, int peer, Comm comm, void* stream) {
  if (type != kByte) return Result::kInvalidArgument;
  return add_move(comm, stream, {false, static_cast<char*>(data), count, 0, peer});
}

Result ncclAllGather(const void* from, void* to, std::size_t count, int type, Comm comm, void* stream) {
  if (type != kByte) return Result::kInvalidArgument;
  const std::shared_ptr<CommTag> tag = find(comm);
  ncclGroupStart();
  Work& work = work_for(comm, stream);
  for (int rank = 0; rank < tag->size; ++rank) {
    char* part = static_cast<char*>(to) + static_cast<std::size_t>(rank) * count;
    if (rank == tag->rank) {
      work.copy_to = part;
      work.copy_from = from;
      work.copy_bytes = count;
      continue;
    }
    ncclSend(from, count, type, rank, comm, stream);
    ncclRecv(part, count, type, rank, comm, stream);
  }
  return ncclGroupEnd();
}

Result ncclBroadcast(const void* from, void* to, std::size_t count, int type, int root, Comm comm,
                     void* stream) {
  if (type != kByte) return Result::kInvalidArgument;
  const std::shared_ptr<CommTag> tag = find(comm);
  ncclGroupStart();
  Work& work = work_for(comm, stream);
  if (tag->rank != root) {
    ncclRecv(to, count, type, root, comm, stream);
    return ncclGroupEnd();
  }
  work.copy_to = to;
  work.copy_from = from;
  work.copy_bytes = count;
  for (int rank = 0; rank < tag->size; ++rank)
    if (rank != root) ncclSend(from, count, type, rank, comm, stream);
  return ncclGroupEnd();
}

Result ncclAllReduce(const void* from, void* to, std::size_t count, int type, int op, Comm comm,
                     void* stream) {
  return add_sum(comm, stream, {from, to, count, 0, static_cast<Element>(type), static_cast<Sum>(op)});
}

Result ncclReduceScatter(const void* from, void* to, std::size_t count, int type, int op, Comm comm,
                         void* stream) {
  const auto element = static_cast<Element>(type);
  return add_sum(comm, stream, {from, to, count, count * bytes_of(element), element, static_cast<Sum>(op)});
}

}  // extern "C"
