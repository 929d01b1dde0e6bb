// A report of a check as bytes: each struct's fields one after the other, by message.h.
#include <tuple>
#include <type_traits>

#include "replay/check/check_report.h"
#include "replay/values/message.h"

namespace epweave::replay {
namespace {

// --- what a struct consists of ---

auto fields(TensorDifference& d) {
  return std::tie(d.problem, d.differing, d.index, d.bits_a, d.bits_b, d.value_a, d.value_b, d.ulp,
                  d.relative_error);
}
auto fields(BoundComparison& c) {
  return std::tie(c.is_within, c.is_bounded, c.largest_share, c.has_ideals, c.largest_unrounded,
                  c.is_unrounded, c.index, c.difference, c.bound);
}
auto fields(OutputCheck& o) {
  return std::tie(o.rank, o.name, o.verdict, o.difference, o.bound);
}
auto fields(NodeCheck& n) {
  return std::tie(n.rank, n.node, n.origin, n.reason, n.difference, n.position);
}
auto fields(RankCheck& r) {
  return std::tie(r.nodes, r.unverified, r.skipped);
}
auto fields(KernelChange& c) {
  return std::tie(c.rank, c.group, c.origin, c.a, c.b);
}
auto fields(ReferenceCheck& r) {
  return std::tie(r.outputs, r.equal_to_a, r.equal_to_b, r.largest_error, r.largest_error_of_b,
                  r.first_unlike_b);
}
auto fields(FirstRun& r) {
  return std::tie(r.seconds, r.contradictions, r.first_contradiction);
}
auto fields(CheckReport& r) {
  return std::tie(r.baseline_is_deterministic, r.rewrite_is_deterministic, r.outputs, r.ranks, r.first,
                  r.kernel_changes, r.first_change, r.largest_share, r.ops_without_bound, r.added_roundings,
                  r.reference, r.bounds, r.devices_agree, r.outputs_not_finite, r.step_is_finite, r.run_a,
                  r.run_b);
}

template <class T>
concept IsWhole = std::is_integral_v<T> || std::is_enum_v<T>;

// --- writing ---

class Encoder {
 public:
  template <IsWhole T>
  void put(const T& number) {
    writer_.number(static_cast<std::uint64_t>(number));
  }
  void put(const double& number) { writer_.real(number); }
  void put(const std::string& text) { writer_.text(text); }
  void put(const NodeId& node) { writer_.number(node.index()); }
  template <class T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <class T, std::size_t N>
  void put(const std::array<T, N>& items) {
    for (const T& item : items) put(item);
  }
  template <class T>
  void put(const std::vector<T>& items) {
    put_all(items);
  }
  template <class T>
  void put(const std::set<T>& items) {
    put_all(items);
  }
  template <class K, class T>
  void put(const std::map<K, T>& items) {
    put_all(items);
  }
  template <class K, class T>
  void put(const std::pair<K, T>& pair) {
    put(pair.first);
    put(pair.second);
  }
  template <class T>
  requires requires(T& value) { fields(value); }
  void put(const T& value) {
    std::apply([this](const auto&... field) { (put(field), ...); }, fields(const_cast<T&>(value)));
  }
  std::string take() { return writer_.take(); }

 private:
  template <class Items>
  void put_all(const Items& items) {
    put(items.size());
    for (const auto& item : items) put(item);
  }
  Writer writer_;
};

// --- reading ---

class Decoder {
 public:
  explicit Decoder(std::string_view text) : reader_(text) {}

  template <IsWhole T>
  void take(T& number) {
    number = static_cast<T>(reader_.number());
  }
  void take(double& number) { number = reader_.real(); }
  void take(std::string& text) { text = reader_.text(); }
  void take(NodeId& node) { node = NodeId(static_cast<std::uint32_t>(reader_.number())); }
  template <class T>
  void take(std::optional<T>& value) {
    if (next<bool>()) value = next<T>();
  }
  template <class T, std::size_t N>
  void take(std::array<T, N>& items) {
    for (T& item : items) take(item);
  }
  template <class T>
  void take(std::vector<T>& items) {
    for (auto count = next<std::uint64_t>(); count != 0; --count) items.push_back(next<T>());
  }
  template <class T>
  void take(std::set<T>& items) {
    for (auto count = next<std::uint64_t>(); count != 0; --count) items.insert(next<T>());
  }
  template <class K, class T>
  void take(std::map<K, T>& items) {
    for (auto count = next<std::uint64_t>(); count != 0; --count) {
      K key = next<K>();
      items[std::move(key)] = next<T>();
    }
  }
  template <class T>
  requires requires(T& value) { fields(value); }
  void take(T& value) {
    std::apply([this](auto&... field) { (take(field), ...); }, fields(value));
  }

 private:
  template <class T>
  T next() {
    T value{};
    take(value);
    return value;
  }
  Reader reader_;
};

}  // namespace

std::string encode(const CheckReport& report) {
  Encoder encoder;
  encoder.put(report);
  return encoder.take();
}

CheckReport decode_check_report(std::string_view text) {
  CheckReport report;
  Decoder(text).take(report);
  return report;
}

}  // namespace epweave::replay
