#include "pipeline/pipeline.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <span>

namespace epweave {
namespace {

PassResult run_nothing(const Graph& graph, const Options&) {
  return {graph};
}

const Registry& toys() {
  static const Registry kToys = {
      .passes =
          {
              {.name = "plain", .summary = "no options", .options = {}, .run = run_nothing},
              {.name = "cut",
               .summary = "every kind of option",
               .options =
                   {
                       {"roots", OptionKind::kList, "layers.*", "what to cut"},
                       {"parts", OptionKind::kInt, "2", "into how many", {}, 2},
                       {"dim", OptionKind::kChoice, "batch", "along what", {"batch", "seq"}},
                       {"exact", OptionKind::kFlag, "false", "exactly"},
                       {"title", OptionKind::kText, "\"\"", "name"},
                   },
               .run = run_nothing},
              {.name = "demand",
               .summary = "a required option",
               .options = {{"what", OptionKind::kText, std::nullopt, "what is demanded"}},
               .run = run_nothing},
          },
      .presets = {{.name = "both",
                   .summary = "two passes",
                   .options = {{"parts", OptionKind::kInt, "2", "into how many"}},
                   .expand =
                       [](const Options& options) {
                         return "plain,cut{parts=" + std::to_string(options.integer("parts")) + "}";
                       }}},
  };
  return kToys;
}

// Printed, once it is known that printing round-trips.
std::string resolved(std::string_view text) {
  const std::string printed = print_pipeline(parse_pipeline(text, toys()));
  CHECK(print_pipeline(parse_pipeline(printed, toys())) == printed);
  return printed;
}

template <class Function>
std::string error_of(const Function& function) {
  try {
    function();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

std::string parse_error(std::string_view text) {
  return error_of([&] { parse_pipeline(text, toys()); });
}

TEST_CASE("printing a pipeline shows every option with its value") {
  CHECK(resolved("plain") == "plain");
  CHECK(resolved("plain{}") == "plain");
  CHECK(resolved("cut,plain") == "cut{roots=layers.*,parts=2,dim=batch,exact=false,title=\"\"},plain");
  CHECK(resolved("cut{exact,parts=3}") == "cut{roots=layers.*,parts=3,dim=batch,exact=true,title=\"\"}");
  CHECK(resolved("cut{exact=false}") == resolved("cut"));
  CHECK(resolved("plain,plain") == "plain,plain");
}

TEST_CASE("white space between tokens means nothing") {
  CHECK(resolved(" plain ,\n cut { roots = [ a:4 , b:2 ] , exact } ") ==
        "plain,cut{roots=[a:4,b:2],parts=2,dim=batch,exact=true,title=\"\"}");
}

TEST_CASE("lists and quoted texts keep what they hold") {
  CHECK(resolved("cut{roots=[]}") == "cut{roots=[],parts=2,dim=batch,exact=false,title=\"\"}");
  CHECK(resolved("cut{roots=[a]}") == resolved("cut{roots=a}"));
  CHECK(resolved("cut{roots=[\"\",\"a b\"],title=\"say \\\"{x,y}\\\" \\\\ =\"}") ==
        "cut{roots=[\"\",\"a b\"],parts=2,dim=batch,exact=false,title=\"say \\\"{x,y}\\\" \\\\ =\"}");
  const Pipeline pipeline = parse_pipeline("cut{title=\"a \\\"b\\\"\",roots=[x,\"y,z\"],parts=-0}, plain",
                                           {.passes = {{.name = "cut",
                                                        .summary = "",
                                                        .options = {{"title", OptionKind::kText, "", ""},
                                                                    {"roots", OptionKind::kList, "[]", ""},
                                                                    {"parts", OptionKind::kInt, "1", ""}}},
                                                       {.name = "plain", .summary = "", .options = {}}},
                                            .presets = {}});
  CHECK(pipeline.calls.front().options.text("title") == "a \"b\"");
  CHECK(pipeline.calls.front().options.list("roots") == std::vector<std::string>{"x", "y,z"});
  CHECK(pipeline.calls.front().options.integer("parts") == 0);
}

TEST_CASE("reading an option that a pass does not have, or as another kind, is a bug") {
  const Pipeline pipeline = parse_pipeline("cut", toys());
  const Options& options = pipeline.calls.front().options;
  CHECK_THROWS_AS(options.text("rots"), CheckError);
  CHECK_THROWS_AS(options.text("parts"), CheckError);
  CHECK_FALSE(options.flag("exact"));
}

TEST_CASE("names that are not known") {
  CHECK(parse_error("plain,cutt{parts=2}") == R"(column 7: unknown pass 'cutt', did you mean 'cut'?
  plain,cutt{parts=2}
        ^
  expected one of plain, cut, demand)");
  CHECK(parse_error("cut{title=\"caf\xe9\",parts=2}") ==
        "column 15: not UTF-8, as what a graph records must be");
  CHECK(parse_error("everything") == R"(column 1: unknown pass 'everything'
  everything
  ^
  expected one of plain, cut, demand)");
  CHECK(parse_error("plain,cut(parts=2)") == R"(column 10: unexpected '('
  plain,cut(parts=2)
           ^
  expected options in braces, cut{..}, or ',' and another pass)");
  CHECK(parse_error("plain:cut") == R"(column 6: unexpected ':'
  plain:cut
       ^
  expected options in braces, plain{..}, or ',' and another pass)");
  CHECK(parse_error("cut{part=2}") == R"(column 5: unknown option of 'cut': 'part', did you mean 'parts'?
  cut{part=2}
      ^
  expected one of roots, parts, dim, exact, title)");
  CHECK(parse_error("cut{roots=a.b,c.d,parts=2}") == R"(column 15: 'cut' has no option 'c.d'
  cut{roots=a.b,c.d,parts=2}
                ^
  expected roots=[...] around a list of several)");
  CHECK(parse_error("plain{x=2}") == R"(column 7: 'plain' has no options
  plain{x=2}
        ^
  expected '}')");
  CHECK(parse_error("both") == R"(column 1: 'both' is a preset, not a pass
  both
  ^
  expected a pass; give a preset with --preset)");
}

TEST_CASE("values that an option does not take") {
  CHECK(parse_error("cut{parts=two}") == R"(column 11: 'two' is not a value of option 'parts'
  cut{parts=two}
            ^
  expected an integer)");
  CHECK(parse_error("cut{parts=1}") == R"(column 11: 1 is too small for option 'parts'
  cut{parts=1}
            ^
  expected at least 2)");
  CHECK(parse_error("cut{parts=99999999999999999999}") ==
        R"(column 11: 99999999999999999999 does not fit in 64 bits
  cut{parts=99999999999999999999}
            ^
  expected an integer of 64 bits)");
  CHECK(parse_error("cut{parts=[2]}") == R"(column 11: option 'parts' takes one value
  cut{parts=[2]}
            ^
  expected no brackets)");
  CHECK(parse_error("cut{dim=bach}") ==
        R"(column 9: unknown value of option 'dim': 'bach', did you mean 'batch'?
  cut{dim=bach}
          ^
  expected one of batch, seq)");
  CHECK(parse_error("cut{exact=yes}") == R"(column 11: 'yes' is not a value of flag 'exact'
  cut{exact=yes}
            ^
  expected true or false)");
  CHECK(parse_error("cut{parts}") == R"(column 10: option 'parts' has no value
  cut{parts}
           ^
  expected parts=VALUE)");
  CHECK(parse_error("cut{parts=}") == R"(column 11: a value is missing
  cut{parts=}
            ^
  expected a word, a quoted text, or a list in brackets)");
  CHECK(parse_error("cut{parts=2,parts=3}") == R"(column 13: option 'parts' is given twice
  cut{parts=2,parts=3}
              ^
  expected it once)");
  CHECK(parse_error("plain, demand") == R"(column 8: 'demand' needs option 'what'
  plain, demand
         ^
  expected demand{what=...}: what is demanded)");
}

TEST_CASE("there are as many parts as sizes") {
  const auto parts = [](const char* text) { return parse_pipeline(text).calls[0].options.integer("parts"); };
  CHECK(parts("chunk") == 2);
  CHECK(parts("chunk{sizes=[7,1,8]}") == 3);
  CHECK(parts("chunk{parts=3,sizes=[7,1,8]}") == 3);
  CHECK_THROWS_WITH(parse_pipeline("chunk{parts=2,sizes=[7,1,8]}"),
                    "option 'parts': 2 parts, but 'sizes' gives the sizes of 3\n"
                    "  expected one of the two, or as many sizes as parts");
  const std::string printed = print_pipeline(parse_pipeline("chunk{sizes=[7,1,8]}"));
  CHECK(print_pipeline(parse_pipeline(printed)) == printed);
}

TEST_CASE("texts that are not pipelines") {
  CHECK(parse_error("") == R"(column 1: a pass is missing
  
  ^
  expected a pass's name)");
  CHECK(parse_error("plain,") == R"(column 7: a pass is missing
  plain,
        ^
  expected a pass's name)");
  CHECK(parse_error("{}") == R"(column 1: unexpected '{'
  {}
  ^
  expected a pass's name)");
  CHECK(parse_error("plain cut") == R"(column 7: unexpected 'c'
  plain cut
        ^
  expected ',' and another pass, or the end)");
  CHECK(parse_error("cut{parts=2") == R"(column 12: missing '}'
  cut{parts=2
             ^
  expected ',' or '}')");
  CHECK(parse_error("cut{parts=2]") == R"(column 12: unexpected ']'
  cut{parts=2]
             ^
  expected ',' or '}')");
  CHECK(parse_error("cut{,}") == R"(column 5: unexpected ','
  cut{,}
      ^
  expected an option's name)");
  CHECK(parse_error("cut{roots=[a") == R"(column 13: missing ']'
  cut{roots=[a
              ^
  expected ',' or ']')");
  CHECK(parse_error("cut{roots=[a}") == R"(column 13: unexpected '}'
  cut{roots=[a}
              ^
  expected ',' or ']')");
  CHECK(parse_error("cut{title=\"a}") == R"(column 11: a quoted text does not end
  cut{title="a}
            ^
  expected '"')");
}

TEST_CASE("presets expand to pipelines") {
  CHECK(print_pipeline(expand_preset("both{parts=3}", toys())) == resolved("plain,cut{parts=3}"));
  CHECK(error_of([] { expand_preset("bot", toys()); }) ==
        R"(column 1: unknown preset 'bot', did you mean 'both'?
  bot
  ^
  expected one of both)");
  CHECK(error_of([] { expand_preset("both,plain", toys()); }) == R"(column 5: unexpected ','
  both,plain
      ^
  expected the end: a preset stands alone)");
  const std::string overlap = print_pipeline(expand_preset("overlap{memory=3%,cluster=h100-2x4}"));
  CHECK(
      overlap ==
      "dce,canonicalize,dedup-unshard,"
      "choose-chunks{parts=auto,memory=run+3%,cluster=h100-2x4},"
      "schedule{memory=run+3%,order=free,recompute=behind-forward,effort=fast,cluster=h100-2x4},concretize");
  CHECK(print_pipeline(expand_preset("overlap{memory=1GiB}")).find("memory=1GiB,cluster=h100}") !=
        std::string::npos);
  CHECK(print_pipeline(expand_preset("overlap{symbolize=yes,dense,unpriced=free}")) ==
        "dce,canonicalize,dedup-unshard,symbolize{inputs=[]},"
        "choose-chunks{parts=auto,dense=true,memory=run+2%,cluster=h100,unpriced=free},"
        "schedule{memory=run+2%,order=free,recompute=behind-forward,effort=fast,cluster=h100,unpriced=free},"
        "concretize");
}

TEST_CASE("the value of `then` is read as options of schedule") {
  CHECK_NOTHROW(parse_pipeline("choose-chunks{then=\"memory=3%,order=kept\"}"));
  CHECK_NOTHROW(parse_pipeline("choose-chunks{then=\"\"}"));
  CHECK_NOTHROW(parse_pipeline("bucket{plan=overlap,then=\"like=inductor,knobs=[max_in_flight_gb=2]\"}"));
  CHECK(error_of([] { parse_pipeline("choose-chunks{then=\"memory=3%;order=kept\"}"); }) ==
        "option 'then': option 'memory': '3%;order=kept' is no amount of memory\n"
        "  expected a share above what the input needs, as in memory=2%, or bytes, as in memory=32.1GiB");
  CHECK(error_of([] { parse_pipeline("choose-chunks{then=\"memory=3% order\"}"); }) ==
        R"(option 'then': column 16: unexpected 'o'
  then=memory=3% order
                 ^
  expected ',' and another option, or the end)");
}

TEST_CASE("rows of the tool's registry are complete") {
  for (const PassInfo& pass : registry().passes) {
    INFO(pass.name);
    CHECK(pass.run);
    CHECK_FALSE(pass.summary.empty());
    for (const OptionSpec& option : pass.options) CHECK_FALSE(option.help.empty());
    const bool needs_options =
        std::any_of(pass.options.begin(), pass.options.end(), [](const auto& o) { return !o.fallback; });
    if (!needs_options) CHECK_NOTHROW(parse_pipeline(pass.name));
  }
}

}  // namespace
}  // namespace epweave
