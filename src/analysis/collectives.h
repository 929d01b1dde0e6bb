// Communication launches and the process groups they are issued on.
//
//   e = all_to_all_single(x, [s0, s1], [r0, r1], "35")     a launch on group "35"
//   w = wait_tensor(e)                                     its wait
//
// A group is named by a string, or, in graphs that hold for every rank, by the node that looks it
// up in a mesh: `mesh_get_process_group(mesh, 0)`. Two such nodes that look up the same axis of the
// same mesh, or a group recorded under the same name along axes alike (LookedUpGroup), are one
// group; a launch then names the first of them.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "ops/bind.h"

namespace epweave {

struct Launch {
  NodeId node;
  Arg group;  // kText, kProcessGroup, or kNode: the first node that looks this group up
};

// All launches of a body, in execution order.
std::vector<Launch> find_launches(const Context& context, const Body& body);
// With those of calls that are launch and wait in one (is_synchronous).
std::vector<Launch> find_all_launches(const Context& context, const Body& body);

// The same for a walk that serves other analyses, too: add each node that executes, in order.
class LaunchFinder {
 public:
  enum class Of : std::uint8_t { kLaunches, kAll };  // kAll: is_synchronous, too
  LaunchFinder(const Context& context, const Body& body, Of of = Of::kLaunches)
      : context_(context), body_(body), of_(of) {}
  void add(NodeId id, const Node& node);
  std::vector<Launch> take();

 private:
  const Context& context_;
  const Body& body_;
  Of of_;
  std::vector<Launch> found_;  // kNode: any node that looks the group up
};

bool is_launch(const Node& node);
bool is_wait(const Node& node);
// A wait for copies between device and host, which frees what was copied; other waits are for
// launches. Each knows nothing of what the other kind waits for.
bool waits_for_copies(const Node& wait);
// What such a wait frees; or none.
NodeId find_freed(const Context& context, const Node& node);
// Whether the wait is of the kind that this launch, or copy, is waited for with.
bool completes(const Node& wait, const Node& launch);
// Launch and wait in one: a kernel that meets those of the group's other ranks (symmetric memory).
bool is_synchronous(const Node& node);

// The launch that a wait waits for, behind views, elements of tuples and other waits; or none: the
// node is not a wait, or waits for something else, also where the wait is of another kind.
//
//   l = all_reduce_coalesced([x, y], "sum", "35")
//   w = wait_tensor(view(getitem(l, 0), [4]))              waits for l
NodeId find_waited_launch(const Context& context, const Body& body, NodeId wait);

// The launch of whose result, or a view of it, the node reads the type alone, so that it needs no
// wait; or none.
//
//   l = all_gather_into_tensor(x, 2, "35")
//   n = sym_size(view(l, [4, 2]), 0)                       reads the type of l
NodeId find_described_launch(const Context& context, const Body& body, const Node& node);

// Visits what lies between a wait, or a read of the type, and its launch, itself included: views,
// elements of tuples and other waits; not the launch.
template <class Visit>  // void(NodeId)
void for_each_behind_launch(const Context& context, const Body& body, NodeId from, NodeId launch,
                            const Visit& visit) {
  for (NodeId at = from; at != launch; at = arg_of(context, body.nodes[at], 0).as_node()) visit(at);
}

// Position of the group among the launch's arguments.
std::size_t group_position(const OpInfo& op);

// "35", or the name of the node that looks the group up.
std::string_view name_of_group(const Context& context, const Body& body, Arg group);

}  // namespace epweave
