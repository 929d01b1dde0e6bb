#include "cost/prices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/collectives.h"
#include "analysis/fused_products.h"
#include "analysis/host_copy.h"
#include "analysis/world.h"
#include "ops/bind.h"
#include "ops/family.h"
#include "ops/traffic.h"

namespace epweave {
namespace {

constexpr double kMicro = 1e-6;

std::int64_t number_entry(const Context& context, Arg dict, std::string_view key) {
  const Arg* value = find_entry(context, dict, key);
  return value != nullptr && value->is_int() ? value->as_int() : 0;
}

Price unpriced(std::string problem, std::string remedy = {}) {
  return {.source = PriceSource::kUnpriced, .problem = std::move(problem), .remedy = std::move(remedy)};
}

Price unpriced_extent() {
  return unpriced("an extent of its tensors has no number",
                  "give its symbol a hint (`symbol s hint=4096`), or trace with numbers");
}

bool has_out(const OpInfo& op) {
  return op.writes && op.find_param("out").has_value();
}

std::uint32_t node_of(std::uint32_t rank, const Cluster& cluster) {
  return rank / static_cast<std::uint32_t>(cluster.gpus_per_node);
}

// Seconds of the message on the links.
double transfer_seconds(const Cluster& cluster, ExchangeKind exchange, double bytes, const StepGroup& group) {
  const double ranks = group.ranks, local = group.local_ranks;
  const double nic = cluster.nic * cluster.nic_eff;
  if (exchange == ExchangeKind::kAllToAll) {
    const double inside = bytes * (local - 1) / ranks / cluster.nvlink_a2a;
    const double across = group.nodes > 1 ? bytes * (ranks - local) / ranks / nic : 0;
    return std::max(inside, across);
  }
  const double rails = cluster.nic_rails != 0 ? local : 1;
  const double link = group.nodes == 1 ? cluster.nvlink : std::min(cluster.nvlink, rails * nic);
  const double passes = exchange == ExchangeKind::kReduce ? 2 : 1;
  return passes * bytes * (ranks - 1) / ranks / link;
}

// copy_ and its like: what they write is not read.
bool is_copy(const OpInfo& op) {
  return op.find_param("non_blocking").has_value();
}

}  // namespace

MemberCounts count_members(const std::vector<std::uint32_t>& ranks, const Cluster& cluster) {
  MemberCounts members;
  for (const std::uint32_t rank : ranks) ++members[node_of(rank, cluster)];
  return members;
}

double collective_seconds(const Cluster& cluster, OpFamily family, std::int64_t bytes,
                          const StepGroup& group) {
  const double latency = (cluster.coll_us + cluster.hop_us * (group.ranks - 1)) * kMicro;
  return (latency + transfer_seconds(cluster, exchange_of(family), static_cast<double>(bytes), group)) *
         cluster.comm_scale;
}

bool runs_on_host(const Graph& graph) {
  const Context& context = *graph.context;
  const auto has_device = [&](auto&& self, TypeId id) -> bool {
    if (!id) return false;
    const Type& type = context.types[id];
    if (type.kind == TypeKind::kTensor && !context.text(type.tensor.device).starts_with("cpu")) return true;
    return std::ranges::any_of(type.elements, [&](TypeId element) { return self(self, element); });
  };
  const Body& body = graph.step();
  return std::ranges::none_of(body.order,
                              [&](NodeId id) { return has_device(has_device, body.nodes[id].type); });
}

Pricer::Pricer(const Graph& graph, const Cluster& cluster, Extents& extents)
    : graph_(graph),
      context_(*graph.context),
      body_(graph.step()),
      cluster_(cluster),
      extents_(extents),
      costs_(graph, extents),
      runs_on_host_(runs_on_host(graph)) {
  rank_ = own_rank(graph);
  if (const Arg* options = find_entry(context_, graph.info, "options"))
    document_ = number_entry(context_, *options, "ctx");
}

// --------------------------------------------------------------------------- tensors

std::span<const PricedTensor> Pricer::tensors_of(TypeId type) {
  if (!type) return {};
  if (!ranges_[type].is_set) {
    const auto begin = static_cast<std::uint32_t>(tensors_.size());
    add_tensors(type);
    ranges_.at(type) = {begin, static_cast<std::uint32_t>(tensors_.size()) - begin, true};
  }
  const Range range = ranges_[type];
  return {tensors_.data() + range.begin, range.count};
}

void Pricer::add_tensors(TypeId id) {
  if (!id) return;
  const Type& type = context_.types[id];
  if (type.kind == TypeKind::kTensor) tensors_.push_back(measure(type.tensor));
  for (TypeId element : type.elements) add_tensors(element);
}

PricedTensor Pricer::measure(const TensorType& tensor) {
  PricedTensor priced{.type = &tensor,
                      .on_host = !runs_on_host_ && context_.text(tensor.device).starts_with("cpu")};
  const bool has_strides = tensor.strides.size() == tensor.sizes.size();
  Count stored = info(tensor.dtype).bytes, moved = stored;
  for (std::size_t i = 0; i < tensor.sizes.size(); ++i) {
    const Count size = extents_.number(tensor.sizes[i]);
    stored = times(stored, size);
    if (!has_strides || extents_.number(tensor.strides[i]) != 0) moved = times(moved, size);
    priced.is_assumed |= extents_.is_assumed(tensor.sizes[i]);
  }
  priced.is_known = stored.has_value() && moved.has_value();
  priced.stored = stored.value_or(0);
  priced.moved = moved.value_or(0);
  return priced;
}

std::optional<std::string> Pricer::describe_operands(NodeId id) {
  const Node& node = body_.nodes[id];
  std::string text;
  bool is_known = true;
  const auto add = [&](NodeId input) { is_known &= describe(input, text); };
  if (node.op == nullptr) {
    for_each_input(context_, node, add);
  } else {
    const BoundArgs bound = bind_args(context_, node);
    for (std::size_t i = 0; i < node.op->params.size(); ++i)
      if (bound.is_given(i)) context_.args.for_each_node(bound.values[i], add);
  }
  return is_known ? std::optional(std::move(text)) : std::nullopt;
}

bool Pricer::describe(NodeId input, std::string& text) {
  bool is_known = true;
  for (const PricedTensor& tensor : tensors_of(body_.nodes[input].type)) {
    text += fmt::format("{}{}[", text.empty() ? "" : ", ", info(tensor.type->dtype).short_name);
    const char* separator = "";
    for (ExprId size : tensor.type->sizes) {
      const Count number = extents_.number(size);
      is_known &= number.has_value();
      text += fmt::format("{}{}", std::exchange(separator, ", "), number.value_or(0));
    }
    text += "]";
  }
  return is_known;
}

std::optional<std::int64_t> Pricer::operand_bytes(NodeId id) {
  std::int64_t bytes = 0;
  std::size_t operands = 0;
  bool is_known = true;
  context_.args.for_each_node(arg_of(context_, body_.nodes[id], 0), [&](NodeId operand) {
    const auto tensors = tensors_of(body_.nodes[operand].type);
    is_known &= tensors.size() == 1 && tensors[0].is_known;
    if (is_known) bytes += tensors[0].stored;
    ++operands;
  });
  return is_known && operands > 0 ? std::optional(bytes) : std::nullopt;
}

// --------------------------------------------------------------------------- kinds

StepKind Pricer::kind_of(NodeId id) {
  const Node& node = body_.nodes[id];
  if (node.kind != NodeKind::kCall) return StepKind::kFree;
  if (is_launch(node)) return StepKind::kLaunch;
  if (is_wait(node)) return find_waited_launch(context_, body_, id) ? StepKind::kWait : StepKind::kView;
  if (node.op != nullptr) {
    if (node.op->cost == CostClass::kHostSync) return StepKind::kItem;
    if (node.op->family == OpFamily::kCheck) return StepKind::kHost;
    if (node.op->cost == CostClass::kFree) {
      if (tensors_of(node.type).empty()) return StepKind::kHost;
      return is_copying_reshape(node) ? StepKind::kKernel : StepKind::kView;
    }
    if (leaves_unset(*node.op)) return StepKind::kAllocation;
  }
  return is_host_only(id) ? StepKind::kHost : StepKind::kKernel;
}

bool Pricer::is_host_only(NodeId id) {
  const Node& node = body_.nodes[id];
  const auto all_on_host = [&](TypeId type) {
    return std::ranges::all_of(tensors_of(type), &PricedTensor::on_host);
  };
  if (tensors_of(node.type).empty() || !all_on_host(node.type)) return false;
  bool is_host = true;
  for_each_input(context_, node, [&](NodeId input) { is_host &= all_on_host(body_.nodes[input].type); });
  return is_host;
}

// Dimensions that are contiguous with their neighbours merge into blocks; the new shape must tile
// block by block.
bool Pricer::is_copying_reshape(const Node& node) {
  if (node.op->family != OpFamily::kReshape || !node.op->is_view) return false;
  const Arg self = arg_of(context_, node, 0);
  if (!self.is_node()) return false;
  const TensorType* before = tensor_of(context_, body_.nodes[self.as_node()].type);
  const TensorType* after = tensor_of(context_, node.type);
  if (before == nullptr || after == nullptr || before->strides.size() != before->sizes.size()) return false;
  struct Block {
    std::int64_t size, stride;
  };
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < before->sizes.size(); ++i) {
    const Count size = extents_.number(before->sizes[i]), stride = extents_.number(before->strides[i]);
    if (!size || !stride || *size == 0) return false;
    if (*size == 1) continue;
    if (!blocks.empty() && blocks.back().stride == *size * *stride)
      blocks.back() = {blocks.back().size * *size, *stride};
    else
      blocks.push_back({*size, *stride});
  }
  std::size_t next = 0;
  std::int64_t left = 1;  // of the block that is being tiled
  for (ExprId extent : after->sizes) {
    const Count size = extents_.number(extent);
    if (!size) return false;
    if (*size <= 1) continue;
    if (left == 1 && next < blocks.size()) left = blocks[next++].size;
    if (left % *size != 0) return true;
    left /= *size;
  }
  return false;
}

bool Pricer::stops_host(NodeId id) const {
  const auto copy = find_host_copy(context_, body_, body_.nodes[id]);
  return copy && copy->is_blocking;
}

// --------------------------------------------------------------------------- kernels

void Pricer::take_operands(NodeId id, std::span<const NodeId> inputs) {
  operands_.taken.clear();
  operands_.read = operands_.written = 0;
  for (NodeId input : inputs)
    for (const PricedTensor& tensor : tensors_of(body_.nodes[input].type)) {
      operands_.taken.push_back(tensor);
      operands_.read += tensor.moved;
    }
  const auto given = tensors_of(body_.nodes[id].type);
  operands_.given.assign(given.begin(), given.end());
  for (const PricedTensor& tensor : given) operands_.written += tensor.moved;
}

Price Pricer::price_kernel(NodeId id, std::span<const NodeId> inputs) {
  const Node& node = body_.nodes[id];
  if (node.op == nullptr) return unpriced("its op has no row in the op table");
  take_operands(id, inputs);
  Price price{.source = PriceSource::kModelled};
  for (const auto* list : {&operands_.taken, &operands_.given})
    for (const PricedTensor& tensor : *list) {
      if (!tensor.is_known) return unpriced_extent();
      if (tensor.is_assumed) price.source = PriceSource::kAssumed;
    }
  if (node.op->cost == CostClass::kMatmul || node.op->cost == CostClass::kAttention) {
    const auto flops = flops_of(id);
    if (!flops) return unpriced("the shapes of its factors are not recorded");
    price.bytes = product_bytes(*node.op);
    price.seconds = cluster_.mm_kernel_us * kMicro +
                    std::max(*flops / peak_of(*node.op), static_cast<double>(price.bytes) / bandwidth());
  } else if (is_between_devices(*node.op)) {
    price.bytes = operands_.written;
    price.seconds = cluster_.kernel_us * kMicro + static_cast<double>(price.bytes) / cluster_.pcie;
  } else {
    const double bytes = moved_bytes(node);
    price.bytes = static_cast<std::int64_t>(bytes);
    price.seconds = cluster_.kernel_us * kMicro + bytes / bandwidth();
  }
  price.seconds *= cluster_.compute_scale;
  return is_synchronous(node) ? add_exchange(id, std::move(price)) : price;
}

// Of a product that is fused with its exchange each rank's block is sent while another is computed:
// one block's share of both is exposed, the rest of the shorter one is hidden. Any other such call
// exchanges behind its kernel.
Price Pricer::add_exchange(NodeId id, Price kernels) {
  const Node& node = body_.nodes[id];
  const StepGroup group = group_of(arg_of(context_, node, group_position(*node.op)));
  if (group.ranks == 0)
    return unpriced(fmt::format("the table of process groups has no ranks of '{}'", group.name));
  if (group.ranks == 1 || operands_.taken.empty()) return kernels;
  const OpFamily family = node.op->family;
  if (family == OpFamily::kGatherPair || family == OpFamily::kScatterPair) {
    for (const PricedTensor& tensor : operands_.taken)
      kernels.seconds += collective_seconds(
          cluster_, family, tensor.stored * (family == OpFamily::kGatherPair ? group.ranks : 1), group);
    return kernels;
  }
  const bool is_fused = is_fused_product(node);
  const auto block = tensors_of(is_fused ? block_of_rank(context_, body_, node) : TypeId());
  const std::int64_t message =
      block.empty() ? operands_.taken.front().stored : block.front().stored * group.ranks;
  const double exchange = collective_seconds(cluster_, family, message, group);
  const double hidden = std::min(kernels.seconds, exchange) * (1 - 1 / static_cast<double>(group.ranks));
  kernels.seconds = is_fused ? kernels.seconds + exchange - hidden : kernels.seconds + exchange;
  return kernels;
}

double Pricer::bandwidth() const {
  return cluster_.hbm * cluster_.hbm_eff;
}

bool Pricer::is_between_devices(const OpInfo& op) const {
  bool host = false, device = false;
  for (const auto* list : {&operands_.taken, &operands_.given})
    for (const PricedTensor& tensor : *list) (tensor.on_host ? host : device) = true;
  return host && device && (is_copy(op) || operands_.taken.size() == 1);
}

double Pricer::moved_bytes(const Node& node) const {
  const auto& taken = operands_.taken;
  const double read = static_cast<double>(operands_.read), written = static_cast<double>(operands_.written);
  const double first = taken.empty() ? 0 : static_cast<double>(taken.front().moved);
  const bool is_in_place = node.op->writes && !has_out(*node.op);
  switch (traffic_of(*node.op)) {
    case Traffic::kAllocates:
      return 0;
    case Traffic::kFills:
      return written;
    case Traffic::kTakesRows:
      return 2 * written + read - first;
    case Traffic::kPutsRows: {
      double rows = 0;
      for (std::size_t i = 1; i < taken.size(); ++i)
        rows = std::max(rows, static_cast<double>(taken[i].moved));
      return read - first + rows + (is_in_place ? 0 : 2 * first);
    }
    case Traffic::kSorts:
      return cluster_.sort_passes * (read + written);
    case Traffic::kSlot:
      return read + slot_bytes();
    case Traffic::kEach:
      break;
  }
  if (has_out(*node.op)) return read;
  if (is_in_place) return is_copy(*node.op) ? read : read + first;
  return read + written;
}

// As many elements as the operands have, in the result's dtype.
double Pricer::slot_bytes() const {
  double bytes = 0;
  for (const PricedTensor& tensor : operands_.taken) {
    const double item = info(tensor.type->dtype).bytes;
    const double packed = operands_.given.empty() ? item : info(operands_.given.front().type->dtype).bytes;
    bytes += static_cast<double>(tensor.moved) * std::min(packed / item, 1.0);
  }
  return bytes;
}

// --------------------------------------------------------------------------- products and
// attention

// Tables of masks are small beside queries, keys and values: they do not count.
std::int64_t Pricer::product_bytes(const OpInfo& op) const {
  if (op.cost == CostClass::kMatmul) return operands_.read + operands_.written;
  std::int64_t bytes = operands_.written;
  for (const PricedTensor& tensor : operands_.taken)
    if (is_floating(tensor.type->dtype)) bytes += tensor.moved;
  return bytes;
}

std::optional<double> Pricer::flops_of(NodeId id) {
  const Node& node = body_.nodes[id];
  if (node.op->cost == CostClass::kAttention) return attention_flops(node);
  const auto cost = costs_.cost_of(id);
  return cost ? std::optional(static_cast<double>(cost->flops)) : std::nullopt;
}

std::optional<Pricer::Shape> Pricer::shape_of(const Node& node, std::string_view param) {
  const auto position = node.op->find_param(param);
  const Arg arg = position ? arg_of(context_, node, *position) : Arg::none();
  const TensorType* tensor = arg.is_node() ? tensor_of(context_, body_.nodes[arg.as_node()].type) : nullptr;
  if (tensor == nullptr || tensor->sizes.size() < 2) return std::nullopt;
  Shape shape;
  for (ExprId size : tensor->sizes) {
    const Count number = extents_.number(size);
    if (!number) return std::nullopt;
    shape.push_back(static_cast<double>(*number));
  }
  return shape;
}

std::optional<double> Pricer::attention_flops(const Node& node) {
  const auto query = shape_of(node, "query"), key = shape_of(node, "key"), value = shape_of(node, "value");
  if (!query || !key || !value) return std::nullopt;
  const std::size_t rows = query->size() - 2;
  double scores = key->at(key->size() - 2);
  for (std::size_t i = 0; i <= rows; ++i) scores *= query->at(i);
  const double wide = query->back(), narrow = value->back();
  const double per_score = node.op->find_param("grad_out") ? 3 * wide + 2 * narrow : wide + narrow;
  return 2 * scores * per_score * attention_share(key->at(key->size() - 2));
}

// Of the score matrix: whole blocks on and below the diagonal of each document.
double Pricer::attention_share(double keys) const {
  if (cluster_.attn_fraction >= 0) return cluster_.attn_fraction;
  const double document = document_ > 0 ? static_cast<double>(document_) : keys;
  const double blocks = std::max(1.0, std::ceil(std::min(document, keys) / cluster_.attn_block));
  return std::min(1.0, document / keys) * (blocks + 1) / (2 * blocks);
}

double Pricer::peak_of(const OpInfo& op) const {
  const double share = op.family == OpFamily::kGroupedMatmul ? cluster_.grouped_eff : cluster_.mm_eff;
  bool is_float32 = true, is_fp8 = false, is_any = false;
  for (const PricedTensor& tensor : operands_.taken) {
    const DType dtype = tensor.type->dtype;
    if (!is_floating(dtype)) continue;
    is_any = true;
    is_fp8 |= info(dtype).bytes == 1;
    is_float32 &= dtype == DType::kFloat32;
  }
  if (is_fp8) return share * cluster_.fp8_flops;
  if (is_float32 && is_any)
    return share * (cluster_.allow_tf32 != 0 ? cluster_.tf32_flops : cluster_.fp32_flops);
  return share * cluster_.bf16_flops;
}

// --------------------------------------------------------------------------- collectives

StepGroup Pricer::group_of(Arg group) const {
  StepGroup found{.name = std::string(name_of_group(context_, body_, group)), .ranks = 0};
  const StringId name = recorded_group(context_, body_, group);
  const ProcessGroup* row = graph_.find_group(name);
  if (row == nullptr) return found;
  found.name = context_.text(name);
  const MemberCounts members = count_members(row->ranks, cluster_);
  found.ranks = static_cast<std::uint32_t>(row->ranks.size());
  found.nodes = static_cast<std::uint32_t>(members.size());
  const auto mine = members.find(node_of(rank_, cluster_));
  // A rank that is not a member stands for one where most members are.
  found.local_ranks = 0;
  for (const auto& [node, count] : members) found.local_ranks = std::max(found.local_ranks, count);
  if (mine != members.end()) found.local_ranks = mine->second;
  return found;
}

Price Pricer::price_launch(NodeId id, const StepGroup& group) {
  const Node& node = body_.nodes[id];
  if (group.ranks == 0)
    return unpriced(fmt::format("the table of process groups has no ranks of '{}'", group.name),
                    "write the group's ranks into the graph (`process_groups` of epweave.export)");
  Price price{.source = PriceSource::kModelled};
  std::int64_t sent = 0, received = 0;
  bool is_known = true;
  const auto add = [&](TypeId type, std::int64_t& sum) {
    for (const PricedTensor& tensor : tensors_of(type)) {
      sum += tensor.stored;
      is_known &= tensor.is_known;
      if (tensor.is_assumed) price.source = PriceSource::kAssumed;
    }
  };
  context_.args.for_each_node(node.args, [&](NodeId input) { add(body_.nodes[input].type, sent); });
  add(node.type, received);
  if (!is_known) return unpriced_extent();
  price.bytes = message_bytes(node.op->family, sent, received);
  if (group.ranks == 1) return {.bytes = price.bytes};
  price.seconds = collective_seconds(cluster_, node.op->family, price.bytes, group);
  return price;
}

std::int64_t Pricer::message_bytes(OpFamily family, std::int64_t sent, std::int64_t received) {
  switch (exchange_of(family)) {
    case ExchangeKind::kAllToAll:
    case ExchangeKind::kScatter:
      return sent;
    case ExchangeKind::kGather:
      return received;
    case ExchangeKind::kReduce:
    case ExchangeKind::kBroadcast:
    case ExchangeKind::kNone:
      break;
  }
  return std::max(sent, received);
}

}  // namespace epweave
