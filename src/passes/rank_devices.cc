#include "passes/rank_devices.h"

namespace epweave {

std::string_view device_kind(std::string_view device) {
  return device.substr(0, device.find(':'));
}

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

}  // namespace epweave
