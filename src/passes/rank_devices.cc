#include "passes/rank_devices.h"

#include <utility>

#include "analysis/devices_on_rank.h"
#include "passes/record.h"

namespace epweave {

StringId find_device(const Context& context, TypeId id) {
  if (!id) return {};
  const Type& type = context.types[id];
  if (type.kind == TypeKind::kTensor) return type.tensor.device;
  if (type.kind == TypeKind::kValue && type.value.is(ArgKind::kDevice)) return type.value.as_name();
  for (TypeId element : type.elements)
    if (const StringId device = find_device(context, element)) return device;
  return {};
}

bool RankDevices::pair(StringId other, StringId here) {
  if (!other || !here) return other == here;
  if (device_kind(context_->text(other)) != device_kind(context_->text(here))) return false;
  return here_of_.emplace(other, here).first->second == here &&
         other_of_.emplace(here, other).first->second == other;
}

TypeId RankDevices::rename(TypeId here, TypeId other) {
  if (!here || !other) return here;
  const Type& model = context_->types[other];
  Type type = context_->types[here];
  if (type.kind != model.kind || type.elements.size() != model.elements.size()) return here;
  if (type.kind == TypeKind::kTensor) {
    if (!pair(model.tensor.device, type.tensor.device)) return {};
    type.tensor.device = model.tensor.device;
  } else if (type.kind == TypeKind::kValue) {
    if (!type.value.is(ArgKind::kDevice) || !model.value.is(ArgKind::kDevice)) return here;
    if (!pair(model.value.as_name(), type.value.as_name())) return {};
    type.value = model.value;
  }
  for (std::size_t i = 0; i < type.elements.size(); ++i) {
    const TypeId renamed = rename(type.elements[i], model.elements[i]);
    if (type.elements[i] && !renamed) return {};
    type.elements[i] = renamed;
  }
  return context_->types.intern(std::move(type));
}

namespace {

class DeviceRenamer {
 public:
  DeviceRenamer(Context& context, const std::map<StringId, StringId>& names)
      : context_(context), names_(names) {}

  // Returns whether an argument of the node names a device that has another name.
  bool run(Node& node) {
    const ArgRange args = node.args, kwargs = node.kwargs;
    map_arguments(context_, node, [&](Arg arg) { return leaf(arg); });
    const bool is_changed = args != node.args || kwargs != node.kwargs;
    node.attr = context_.args.map(node.attr, [&](Arg arg) { return leaf(arg); });
    node.type = rename(node.type);
    if (node.extra == nullptr || !node.extra->example_type) return is_changed;
    NodeExtra extra = *node.extra;
    extra.example_type = rename(extra.example_type);
    if (extra.example_type != node.extra->example_type) node.extra = context_.own(std::move(extra));
    return is_changed;
  }

 private:
  StringId name(StringId device) const {
    const auto found = names_.find(device);
    return found != names_.end() ? found->second : device;
  }
  Arg leaf(Arg arg) {
    if (arg.is(ArgKind::kDevice)) return Arg::named(ArgKind::kDevice, name(arg.as_name()));
    return arg.is(ArgKind::kTypeRef) ? Arg::type_ref(rename(arg.as_type())) : arg;
  }
  TypeId rename(TypeId id) {
    if (!id || renamed_[id]) return id ? renamed_[id] : id;
    Type type = context_.types[id];
    if (type.kind == TypeKind::kTensor) type.tensor.device = name(type.tensor.device);
    if (type.kind == TypeKind::kValue) type.value = leaf(type.value);
    for (TypeId& element : type.elements) element = rename(element);
    const TypeId made = context_.types.intern(std::move(type));
    renamed_.at(id) = made;
    return made;
  }

  Context& context_;
  const std::map<StringId, StringId>& names_;
  SideTable<TypeId, TypeId> renamed_;
};

}  // namespace

void rename_devices(Graph& graph, const std::map<StringId, StringId>& names, const Provenance& record) {
  DeviceRenamer renamer(*graph.context, names);
  for (Body& body : graph.bodies)
    for (NodeId id : body.order) {
      Node& node = body.nodes[id];
      if (renamer.run(node) && &body == &graph.step()) record_specialized(*graph.context, node, record);
    }
}

}  // namespace epweave
