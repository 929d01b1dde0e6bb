#include "cost/chakra.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/collectives.h"
#include "analysis/world.h"
#include "ops/bind.h"
#include "ops/family.h"
#include "ops/op.h"

namespace epweave {
namespace {

// Protobuf's encoding of the few fields that a trace has. Numbers of fields and enumerators are
// those of et_def.proto.
class Message {
 public:
  void add(int field, std::uint64_t number) {
    add_varint(static_cast<std::uint64_t>(field) << 3);
    add_varint(number);
  }
  void add(int field, std::string_view bytes) {
    add_varint(static_cast<std::uint64_t>(field) << 3 | 2);
    add_varint(bytes.size());
    bytes_.append(bytes);
  }
  void add(int field, const std::vector<std::uint64_t>& numbers) {
    if (numbers.empty()) return;
    Message packed;
    for (std::uint64_t number : numbers) packed.add_varint(number);
    add(field, packed.bytes_);
  }
  const std::string& bytes() const { return bytes_; }
  // With its length in front.
  static std::string delimited(std::string_view bytes) {
    Message message;
    message.add_varint(bytes.size());
    message.bytes_.append(bytes);
    return std::move(message.bytes_);
  }

 private:
  void add_varint(std::uint64_t number) {
    for (; number > 0x7f; number >>= 7) bytes_.push_back(static_cast<char>((number & 0x7f) | 0x80));
    bytes_.push_back(static_cast<char>(number));
  }
  std::string bytes_;
};

enum NodeField : int { kId = 1, kName = 2, kType = 3, kControl = 4, kDuration = 7, kAttribute = 10 };
enum AttributeField : int { kAttributeName = 1, kUint64 = 13, kBool = 27, kString = 29 };
constexpr std::uint64_t kCompute = 4, kCollective = 7;
constexpr std::string_view kVersion = "0.0.4";

void add_attribute(Message& node, std::string_view name, std::uint64_t value, AttributeField field) {
  Message attribute;
  attribute.add(kAttributeName, name);
  attribute.add(field, value);
  node.add(kAttribute, attribute.bytes());
}

// all_reduce 0, all_gather 2, broadcast 5, all_to_all 6, reduce_scatter 7.
std::optional<std::uint64_t> kind_of(OpFamily family) {
  switch (exchange_of(family)) {
    case ExchangeKind::kReduce:
      return 0;
    case ExchangeKind::kGather:
      return 2;
    case ExchangeKind::kBroadcast:
      return 5;
    case ExchangeKind::kAllToAll:
      return 6;
    case ExchangeKind::kScatter:
      return 7;
    case ExchangeKind::kNone:
      return {};
  }
  return {};
}

Message begin_node(std::uint64_t id, std::string_view name, std::uint64_t type,
                   const std::vector<std::uint64_t>& behind) {
  Message node;
  node.add(kId, id);
  node.add(kName, name);
  node.add(kType, type);
  node.add(kControl, behind);
  return node;
}

void add_work(Message& node, bool on_cpu, std::uint64_t picoseconds) {
  add_attribute(node, "is_cpu_op", on_cpu ? 1 : 0, kBool);
  add_attribute(node, "num_ops", picoseconds, kUint64);
  add_attribute(node, "tensor_size", 1, kUint64);
}

}  // namespace

ChakraTraces::ChakraTraces(const Graph& graph, const StepModel& model) {
  number_groups(graph, model);
  last_in_group_.assign(model.step_groups.size(), 0);
  id_of_.assign(model.size(), 0);
  for (Place place = 0; place < model.size(); ++place) {
    if (model.kinds[place] == StepKind::kKernel && model.seconds[place] > 0) {
      add_compute(graph, model, place);
    } else if (model.is_costed_launch(place)) {
      add_launch(graph, model, place);
    } else if (model.kinds[place] == StepKind::kWait && model.launches[place] != kNoPlace) {
      const std::uint64_t launch = id_of_[model.launches[place]];
      if (launch != 0 && std::ranges::find(stream_, launch) == stream_.end()) stream_.push_back(launch);
    }
  }
}

// Numbers from 1 on for each group's members; 0 is the simulator's group of all ranks.
void ChakraTraces::number_groups(const Graph& graph, const StepModel& model) {
  const World world = derive_world(graph);
  ranks_ = world.size;
  number_of_.assign(model.step_groups.size(), std::vector<std::uint32_t>(ranks_));
  std::vector<Place> first_launch(model.step_groups.size(), kNoPlace);
  for (Place place = 0; place < model.size(); ++place)
    if (model.is_costed_launch(place) && first_launch[model.groups[place]] == kNoPlace)
      first_launch[model.groups[place]] = place;
  for (std::size_t g = 0; g < model.step_groups.size(); ++g) {
    if (first_launch[g] == kNoPlace) continue;
    const auto found = world.groups.find(model.step_groups[g].name);
    const bool is_known = found != world.groups.end() && found->second.of_rank.size() == ranks_;
    if (!is_known)
      throw PassError(
          "chakra.group",
          fmt::format("the members of process group {} on other ranks are not known: {}",
                      model.step_groups[g].name,
                      found == world.groups.end() ? "it is not in the graph's table" : found->second.problem),
          site_of(graph, graph.step().nodes[model.nodes[first_launch[g]]]),
          "export the graph with its meshes, or with groups that are axes of one");
    std::map<std::vector<std::uint32_t>, std::uint32_t> numbers;
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      const std::vector<std::uint32_t>& ranks = found->second.of_rank[rank];
      const auto [known, is_new] =
          numbers.try_emplace(ranks, static_cast<std::uint32_t>(members_.size() + 1));
      if (is_new) members_.push_back(ranks);
      number_of_[g][rank] = known->second;
    }
  }
}

std::string ChakraTraces::name_of(const Graph& graph, const StepModel& model, Place place) const {
  return std::string(graph.text(graph.step().nodes[model.nodes[place]].name));
}

void ChakraTraces::add_compute(const Graph& graph, const StepModel& model, Place place) {
  const auto length = static_cast<std::uint64_t>(std::llround(model.seconds[place] * 1e12));
  picoseconds_ += length;
  const std::uint64_t duration = picoseconds_ / 1000000 - microseconds_;
  microseconds_ += duration;
  const std::uint64_t id = program_.size() + 1;
  Message node = begin_node(id, name_of(graph, model, place), kCompute, stream_);
  node.add(kDuration, duration);
  add_work(node, false, std::max<std::uint64_t>(1000, length));
  program_.push_back({node.bytes()});
  id_of_[place] = id;
  stream_ = {id};
}

// Behind the stream, as an event recorded at the launch is; or, where the cluster says so, behind
// its operands only.
void ChakraTraces::add_launch(const Graph& graph, const StepModel& model, Place place) {
  const Node& launch = graph.step().nodes[model.nodes[place]];
  const auto kind = kind_of(launch.op->family);
  if (!kind)
    throw PassError(
        "chakra.collective", "execution traces have no such collective", site_of(graph, launch),
        "leave it out, or use one of all_gather, reduce_scatter, all_reduce, all_to_all, broadcast");
  const std::uint32_t group = model.groups[place];
  std::vector<std::uint64_t> behind = stream_;
  if (last_in_group_[group] != 0) behind.push_back(last_in_group_[group]);
  std::ranges::sort(behind);
  behind.erase(std::unique(behind.begin(), behind.end()), behind.end());

  const std::string name = name_of(graph, model, place);
  const double fixed = model.cluster.coll_us;
  if (fixed > 0) {
    const std::uint64_t id = program_.size() + 1;
    Message latency = begin_node(id, name + ".launch", kCompute, behind);
    latency.add(kDuration, static_cast<std::uint64_t>(std::llround(fixed)));
    add_work(latency, true, 1);  // the CPU's nodes take their duration
    program_.push_back({latency.bytes()});
    behind = {id};
  }
  const std::uint64_t id = program_.size() + 1;
  Message node = begin_node(id, name, kCollective, behind);
  // Of an all-gather, what one rank sends; of others, what there is before.
  const auto ranks = static_cast<std::int64_t>(model.step_groups[group].ranks);
  const std::int64_t bytes = model.bytes[place] / (launch.op->family == OpFamily::kAllGather ? ranks : 1);
  if (launch.op->family == OpFamily::kBroadcast)
    node.add(kDuration, static_cast<std::uint64_t>(std::llround(model.seconds[place] * 1e6)));
  add_attribute(node, "is_cpu_op", 0, kBool);
  add_attribute(node, "comm_type", *kind, kUint64);
  add_attribute(node, "comm_size", static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 1)), kUint64);
  program_.push_back({node.bytes(), group});
  id_of_[place] = last_in_group_[group] = id;
  ++collectives_;
}

std::string ChakraTraces::trace(std::uint32_t rank) const {
  Message metadata;
  metadata.add(1, kVersion);
  std::string file = Message::delimited(metadata.bytes());
  for (const Step& step : program_) {
    if (step.group == ~0U) {
      file += Message::delimited(step.bytes);
      continue;
    }
    Message group, attribute;
    group.add(kAttributeName, "pg_name");
    group.add(kString, std::to_string(number_of_[step.group][rank]));
    attribute.add(kAttribute, group.bytes());
    file += Message::delimited(step.bytes + attribute.bytes());
  }
  return file;
}

std::string ChakraTraces::groups_file() const {
  std::string text = "{";
  for (std::size_t i = 0; i < members_.size(); ++i)
    text += fmt::format("{}\"{}\": [{}]", i == 0 ? "" : ",\n ", i + 1, fmt::join(members_[i], ", "));
  return text + "}\n";
}

}  // namespace epweave
