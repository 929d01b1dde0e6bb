// Moves bytes between the devices of ranks that are processes of their own: NCCL
// (nccl/communicators.h).
//
// Calls queue work on a stream and return. Every member of the group makes the same calls in the
// same order. A failure is a CollectiveError.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "replay/collectives/transport.h"

namespace epweave::replay {

// Bytes for, or from, a member of a group.
struct Parcel {
  std::size_t member = 0;
  void* data = nullptr;
  std::size_t bytes = 0;
};

// Where a call is queued: a group's communicator, and a stream as the device's libraries know it.
// `number`: which of the group's collectives it is of.
struct Channel {
  const std::string& group;
  const std::vector<Rank>& members;  // two graphs may call different groups by one name
  void* stream = nullptr;
  std::uint64_t number = 0;
};

// Elements that the members add up, in an order of the library's own.
struct LibrarySum {
  const void* from = nullptr;  // this member's, `count` of them, or of as many slices as there are members
  void* to = nullptr;          // `count`
  std::size_t count = 0;
  DType dtype = DType::kFloat32;
  Reduction reduction = Reduction::kSum;
};

// Work that was queued, for the watchdog.
struct Underway {
  std::string what;  // "collective 3 on group 35: %a = ..."
  std::function<bool()> has_begun, is_done;
};

class Exchange {
 public:
  virtual ~Exchange() = default;
  // All at once. Parcels of no bytes are left out; both sides know that they are.
  virtual void exchange(const Channel& channel, std::span<const Parcel> sends,
                        std::span<const Parcel> receives) = 0;
  // `to` takes the members' `bytes`, in order.
  virtual void gather(const Channel& channel, const void* from, void* to, std::size_t bytes) = 0;
  // `source.data` is read on member `source.member` only.
  virtual void broadcast(const Channel& channel, const Parcel& source, void* to) = 0;
  // Whether the library reduces these itself. If not, bytes are moved and our kernels add them up
  // in the documented order (transport.h).
  virtual bool adds_up(DType dtype, Reduction reduction) const = 0;
  // Where adds_up(): member i takes slice i of the sum; all take all of it.
  virtual void reduce_scatter(const Channel& channel, const LibrarySum& sum) = 0;
  virtual void all_reduce(const Channel& channel, const LibrarySum& sum) = 0;
  // To be asked after the host has waited for a stream, before it reads: throws where what was to
  // arrive did not.
  virtual void require_sound() = 0;
  // Fails the run where the work has begun and is not done within the deadline.
  virtual void watch(Underway work) = 0;
  // How long some of the watched work was on the device, all in all: begun and not done.
  virtual std::chrono::nanoseconds time_on_device() const = 0;
  // All that is watched is done, or was aborted; what it is asked of may go.
  virtual void unwatch() = 0;
};

}  // namespace epweave::replay
