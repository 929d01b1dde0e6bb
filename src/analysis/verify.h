// The invariants of a graph. Each has a name; all violations are listed, not the first.
//
//   structure (verify_structure): what every other part of the tool takes for granted
//     step-present      bodies[0] exists and is the step
//     order             the order lists nodes of the table, each once
//     unique-names      no two executing nodes of a body have the same name
//     resolved-refs     every node reference names a node of its body that executes
//     defined-first     a node executes after the nodes it refers to
//     one-output        a body ends with its only output node, which nothing refers to
//     placeholders      placeholders come before everything else; the step has one input role for
//                       each, by name
//     outputs           the step's output node returns a list or tuple, one output role for each
//                       element
//     nested-graphs     every nested graph named by an argument or attribute exists; names are
//                       unique
//     symbols           symbol names are unique
//     world             info rank is a rank of the world, and info world_size a number of ranks
//     kwargs            keyword names of a call are unique
//   types (verify_types)
//     schema            a call's arguments fit the op's schema: no unknown keyword, none missing or
//                       given twice
//     type              a call's recorded type is what the op's type rule gives
//     mesh-group        a group that is looked up in a mesh is recorded as one of the ranks that the
//                       mesh has along the axis, through the file's own rank
//     symbols-bound     every symbol in a recorded type or argument is bound by an earlier node or
//                       placeholder
//     bindings          a symbol is bound once
//     symbol-hints      the number that a symbol had when traced is within its range
//   communication (verify_communication)
//     waits             every collective's result is waited on before another op reads it, or the
//                       memory that it writes, or overwrites or frees what it sends
//                       (verify_waits.cc)
//     groups            a collective names a group of the table, which holds the file's own rank,
//                       where the graph says that (info.rank)
//     collectives       a collective's reduction is known, its source is a member of the group,
//                       its group size is that of the group, and no split size is below zero
//                       (ops/collective_arguments.h)
//   chunking (verify_chunking)
//     chunk-fields      a node with chunk fields has a region and a known role; body nodes have a
//                       part
//   tags (verify_regional)
//     regional-private  a nested graph that a call tagged for regional_inductor names is named by a
//                       node that no other call reads (analysis/regional_tag.h)
//   host reads (verify_host_reads)
//     host-reads        the host reads what a non-blocking copy from the device writes only behind
//                       something that made the host wait (analysis/host_copy.h)
//   memory (verify_storage), of the step; by the numbers that extents had when traced
//     freed-memory      nothing takes a tensor whose memory a wait for a copy to the host has freed
//     memory-bounds     as_strided shows elements that the memory of its operand has
//     write-overlap     no call writes a tensor several of whose elements are one in memory, as
//                       expand makes them
//   provenance (verify_provenance), for graphs that a pass made; of the step's nodes
//     origin-exists     an origin names a node of Graph::origins
//     origin-covered    every node has a record, of an origin but where a pass added it for none
//     origin-target     a kept or moved node, or a body part, has the target of one of its origins,
//                       unless another record says that a pass made or changed the call
//     origin-parts      part < parts; a body part says of how many, and no part of an origin exists
//                       twice, but for parts of what computes it again or was added for it
//
// What of memory and launches is checked takes types that are not recorded from the ops' rules.
// Types are checked against what is recorded for a call's inputs, so one wrong type is reported
// where it is, and where a user's type does not follow from it. Ops without a row or rule, and
// values without a recorded type, are not checked; nor is what depends on more than 64 calls in a
// row whose types are not recorded: each of them is inferred within the next.
#pragma once

#include <string>
#include <vector>

#include "ir/facts.h"
#include "ir/graph.h"

namespace epweave {

struct Violation {
  std::string invariant;  // name from the list above
  std::string message;    // what is wrong, with the values
  Site site;              // of the offending node, if there is one
  StringId body;          // of the nested graph, if not the step
};

void verify_structure(const Graph& graph, std::vector<Violation>& out);
// The others need a graph whose structure is sound, and some of them what is known of its symbols.
void verify_types(const Graph& graph, Facts& facts, std::vector<Violation>& out);
void verify_communication(const Graph& graph, Facts& facts, std::vector<Violation>& out);
void verify_chunking(const Graph& graph, std::vector<Violation>& out);
void verify_regional(const Graph& graph, std::vector<Violation>& out);
void verify_host_reads(const Graph& graph, std::vector<Violation>& out);
void verify_storage(const Graph& graph, Facts& facts, std::vector<Violation>& out);
void verify_provenance(const Graph& graph, std::vector<Violation>& out);

// All of them; only structure if that is broken.
std::vector<Violation> verify_graph(const Graph& graph);

// One line: "type: mm_3 (aten.mm.default, layers.1.moe): recorded bf16[8], rule gives bf16[16]".
std::string print_violation(const Graph& graph, const Violation& violation);

}  // namespace epweave
