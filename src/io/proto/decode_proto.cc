#include <fmt/format.h>
#include <google/protobuf/arena.h>

#include <array>

#include "epweave.pb.h"
#include "io/proto/decode_nodes.h"
#include "io/proto/decode_values.h"
#include "io/proto/message_fields.h"
#include "io/proto/proto_codec.h"
#include "ir/text/text_spelling.h"

namespace epweave {
namespace {

// Takes the file apart. Its tables are parsed by protobuf, nodes are read where they lie.
class GraphDecoder {
 public:
  GraphDecoder(std::string_view bytes, const std::string& path, std::shared_ptr<Context> context)
      : graph_{.context = std::move(context)}, values_(path, *graph_.context) {
    parse_tables(bytes);
  }

  Graph decode() {
    if (file_.magic() != "epweave") values_.fail("not an epweave graph");
    decode_version();
    values_.add_strings(texts_);
    values_.add_types(file_.types());
    // Node references exist only inside bodies.
    graph_.info = values_.decode_value(file_.info());
    for (const proto::PassRun& run : file_.passes()) graph_.passes.push_back(decode_pass(run));
    graph_.origins.reserve(origin_rows_.size());
    for (std::string_view origin : origin_rows_) graph_.origins.push_back(decode_origin(origin));
    for (const proto::ProcessGroup& group : file_.process_groups())
      graph_.groups.push_back(decode_group(group));
    for (const proto::Symbol& symbol : file_.symbols()) graph_.symbols.push_back(decode_symbol(symbol));
    graph_.inputs.reserve(input_rows_.size());
    for (std::string_view input : input_rows_) graph_.inputs.push_back(decode_input(input));
    graph_.outputs.reserve(output_rows_.size());
    for (std::string_view output : output_rows_) graph_.outputs.push_back(decode_output(output));
    NodeDecoder nodes(values_);
    for (std::string_view body : bodies_) graph_.bodies.push_back(nodes.decode_body(body));
    graph_.unknown_fields = unknown_of(file_);
    return std::move(graph_);
  }

 private:
  // An empty entry takes two bytes of a file and hundreds in memory, so that a small file could
  // fill it. No step has as many as these.
  void count_entry(std::uint32_t tag) {
    struct Limit {
      int field;
      std::uint32_t most;
      std::string_view entries;
    };
    static constexpr std::array<Limit, kLimitedFields> kLimits = {{
        {proto::File::kPassesFieldNumber, 1u << 17, "passes"},
        {proto::File::kProcessGroupsFieldNumber, 1u << 17, "process groups"},
        {proto::File::kGraphsFieldNumber, 1u << 17, "graphs"},
        {proto::File::kSymbolsFieldNumber, 1u << 20, "symbols"},
        {proto::File::kInputsFieldNumber, 1u << 20, "inputs"},
        {proto::File::kOutputsFieldNumber, 1u << 20, "outputs"},
    }};
    for (std::size_t i = 0; i < kLimits.size(); ++i)
      if (tag == bytes_tag(kLimits[i].field) && ++counts_[i] > kLimits[i].most)
        values_.fail(fmt::format("more than {} {}, which no step has", kLimits[i].most, kLimits[i].entries));
  }

  // All of the file but its bodies, strings, origins, inputs and outputs: they stay where they are.
  void parse_tables(std::string_view bytes) {
    const auto others = split_fields(bytes, [&](std::uint32_t tag, std::string_view content) {
      count_entry(tag);
      if (tag == bytes_tag(proto::File::kGraphsFieldNumber)) {
        bodies_.push_back(content);
      } else if (tag == bytes_tag(proto::File::kStringsFieldNumber)) {
        if (text::count_valid_utf8(content) < content.size()) values_.fail_parse();
        texts_.push_back(content);
      } else if (tag == bytes_tag(proto::File::kOriginsFieldNumber)) {
        origin_rows_.push_back(content);
      } else if (tag == bytes_tag(proto::File::kInputsFieldNumber)) {
        input_rows_.push_back(content);
      } else if (tag == bytes_tag(proto::File::kOutputsFieldNumber)) {
        output_rows_.push_back(content);
      } else {
        return false;
      }
      return true;
    });
    if (!others || !parse_message(*others, file_)) values_.fail_parse();
  }

  void decode_version() {
    const proto::Version& version = file_.version();
    if (version.format() == 0) values_.fail("no format version");
    if (version.min_reader() > 1)
      values_.fail(fmt::format(
          "format version {} needs a reader of version {}; this is version 1: use a newer epweave",
          version.format(), version.min_reader()));
    for (const std::string& feature : version.required_features())
      values_.fail(fmt::format("requires feature '{}', which this version does not know: use a newer epweave",
                               feature));
    graph_.version = {version.format(), version.min_reader(), version.producer(), {}, unknown_of(version)};
  }

  Origin decode_origin(std::string_view message) const {
    Origin origin;
    values_.for_each_field(message, [&](const WireReader& in) {
      if (in.tag() == number_tag(1)) {
        origin.name = values_.text(in.ref());
      } else if (in.tag() == number_tag(2)) {
        origin.target = values_.text(in.ref());
      } else {
        values_.fail_unknown("epweave.proto.Origin");
      }
    });
    return origin;
  }

  static PassRun decode_pass(const proto::PassRun& run) {
    return {run.name(),
            run.options(),
            run.tool(),
            run.nodes_before(),
            run.nodes_after(),
            run.input_sha256(),
            {run.notes().begin(), run.notes().end()},
            unknown_of(run)};
  }

  ProcessGroup decode_group(const proto::ProcessGroup& group) {
    ProcessGroup result;
    result.name = values_.text(group.name());
    result.ranks.assign(group.ranks().begin(), group.ranks().end());
    result.description = values_.text(group.description());
    if (group.has_axes()) {
      result.axes.emplace();
      for (std::uint32_t axis : group.axes()) result.axes->push_back(values_.text(axis));
    }
    result.priority = values_.text(group.priority());
    result.split_from = values_.text(group.split_from());
    result.backend = values_.text(group.backend());
    result.unknown_fields = unknown_of(group);
    return result;
  }

  Symbol decode_symbol(const proto::Symbol& symbol) {
    Symbol result;
    result.name = values_.text(symbol.name());
    if (!result.name) values_.fail("a symbol has no name");
    if (symbol.lower() != 0) result.lower = values_.expr(symbol.lower());
    if (symbol.upper() != 0) result.upper = values_.expr(symbol.upper());
    if (symbol.has_hint()) result.hint = symbol.hint();
    result.size_like = symbol.size_like();
    if (symbol.has_unbacked()) result.unbacked = symbol.unbacked();
    if (symbol.has_asserts()) {
      result.asserts.emplace();
      for (std::uint32_t ref : symbol.asserts()) result.asserts->push_back(values_.expr(ref));
    }
    if (symbol.replaced_by() != 0) result.replaced_by = values_.expr(symbol.replaced_by());
    for (std::uint32_t ref : symbol.assumptions()) result.assumptions.push_back(values_.expr(ref));
    result.part_of = values_.text(symbol.part_of());
    result.unknown_fields = unknown_of(symbol);
    return result;
  }

  InputRole decode_input(std::string_view message) {
    InputRole input;
    pairs_.clear();
    values_.for_each_field(message, [&](const WireReader& in) {
      switch (in.tag()) {
        case number_tag(1):
          input.name = values_.text(in.ref());
          break;
        case number_tag(2):
          input.role = values_.text(in.ref());
          break;
        case number_tag(3):
          input.fqn = values_.text(in.ref());
          break;
        case number_tag(4):
          input.which = values_.text(in.ref());
          break;
        case bytes_tag(5):
          values_.add_keyword(in.content(), pairs_);
          break;
        default:
          input.unknown_fields += in.field();
      }
    });
    input.more = graph_.context->args.add(pairs_);
    return input;
  }

  OutputRole decode_output(std::string_view message) {
    OutputRole output;
    pairs_.clear();
    values_.for_each_field(message, [&](const WireReader& in) {
      switch (in.tag()) {
        case number_tag(1):
          output.role = values_.text(in.ref());
          break;
        case number_tag(2):
          output.fqn = values_.text(in.ref());
          break;
        case bytes_tag(3):
          values_.add_keyword(in.content(), pairs_);
          break;
        default:
          output.unknown_fields += in.field();
      }
    });
    output.more = graph_.context->args.add(pairs_);
    return output;
  }

  static constexpr std::size_t kLimitedFields = 6;

  google::protobuf::Arena arena_;  // of file_, whose tables are many small messages
  proto::File& file_ = *google::protobuf::Arena::CreateMessage<proto::File>(&arena_);
  // file_ has all but these.
  std::array<std::uint32_t, kLimitedFields> counts_{};
  std::vector<std::string_view> bodies_, texts_, origin_rows_, input_rows_, output_rows_;
  std::vector<Arg> pairs_;  // names and values of an input or output, in room that all share
  Graph graph_;
  ValueDecoder values_;
};

}  // namespace

Graph decode_proto(std::string_view bytes, const std::string& path, std::shared_ptr<Context> context) {
  return GraphDecoder(bytes, path, std::move(context)).decode();
}

}  // namespace epweave
