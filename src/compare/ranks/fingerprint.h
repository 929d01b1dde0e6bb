// What a compiled graph must have in common with the run that loads it, field by field.
//
//   graph         hash of the calls: arguments, types, modules, tags, hints, other metadata, nested
//                 graphs, constants
//   inputs        hash of their types and roles               outputs    hash of their roles
//   symbols       hash of their ranges, hints and facts
//   passes        each pass with its options, in order        tool       the versions that ran them
//   groups        the process groups, by axes and members     meshes     axes and extents of the job's meshes
//   world_size    how many ranks                              ranks      "all", or "one": whose graph it is
//   model, configuration, options, stage, torch, torchtitan, deterministic    as the trace recorded them
//   producer      what wrote the file                         device     "cuda": the kind
//   info.KEY      whatever else the trace recorded; of a long one its hash
//   config.KEY    free-form values of the caller
//
// The device that the inputs are on stands in no other field, nor does its index.
//
// Of content: rank, names of groups and nodes, paths, dates, source lines and the tracer's accounts
// of where calls came from are not in it, so that the same configuration
// gives the same fingerprint on any machine and rank.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/rank_view.h"
#include "base/pieces.h"
#include "ir/graph.h"

namespace epweave {

using Fingerprint = std::map<std::string, std::string>;  // by field

// Of a field that the trace may record and this one does not.
inline constexpr std::string_view kNotRecorded = "not recorded";

// All but `config.KEY`. `hash` gives hexadecimal digits of the bytes that a function gives piece by
// piece: the text of a large graph's calls is never whole in memory.
using HashBytes = std::string (*)(const ProduceBytes& produce);
Fingerprint take_fingerprint(const Graph& graph, HashBytes hash);

// The one that is written into the graph's info, or none.
std::optional<Fingerprint> read_fingerprint(const Graph& graph);
void write_fingerprint(Graph& graph, const Fingerprint& fingerprint);

struct FingerprintMismatch {
  std::string field;
  std::optional<std::string> artifact, here;  // none: missing there
};
std::vector<FingerprintMismatch> compare_fingerprints(const Fingerprint& artifact, const Fingerprint& here);

}  // namespace epweave
