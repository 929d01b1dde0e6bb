// A graph as a list of steps: what a device's host thread does, in order.
//
//   input  %x                                    a value comes from outside
//   host   %n = aten.sym_size.int                arithmetic of the host
//   launch %y = aten.mm.default on compute       a kernel, queued on a stream
//   record e0 on compute                         an event behind what is queued
//   join   e0 on comm:35                         the stream waits for the event
//   comm   %a = _c10d_functional.all_to_all_single.default on comm:35
//   wait   %w = _c10d_functional.wait_tensor.default on compute
//   sync   compute                               the host waits for the stream
//   free   %y                                    the value is not used any more
//   output
//
// Streams and events follow PyTorch: one compute stream, one stream per process group; a collective
// starts after all compute launched before it (record, join), a wait makes the compute stream wait
// for it. The host waits for the compute stream where it reads an element, and behind a copy to the
// host that is not `non_blocking`. The list is a plain value: every executor runs it, the CPU one
// in order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace epweave::replay {

enum class StepKind : std::uint8_t {
  kInput,
  kHost,
  kLaunch,
  kRecord,
  kJoin,
  kComm,
  kWait,
  kSync,
  kFree,
  kOutput,
};

inline constexpr std::uint32_t kNoEvent = ~0U;

struct Step {
  StepKind kind = StepKind::kLaunch;
  NodeId node;                     // kFree: the value; kRecord, kJoin, kSync: none
  std::uint32_t stream = 0;        // of Steps::streams
  std::uint32_t event = kNoEvent;  // kRecord, kJoin
};

struct Steps {
  std::vector<std::string> streams;     // "compute", "comm:35"
  std::vector<bool> has_high_priority;  // by stream: the group table says `priority=high`
  std::uint32_t events = 0;
  std::vector<Step> list;
};

// The steps of a body: the training step, or a nested graph.
Steps plan_steps(const Graph& graph, const Body& body);

std::string_view name_of(StepKind kind);  // "input", "launch", ...
// Whether steps of the kind are of a node, on a stream, with an event.
bool has_node(StepKind kind);
bool has_stream(StepKind kind);

std::string print_steps(const Graph& graph, const Body& body, const Steps& steps);

}  // namespace epweave::replay
