// Graphs in files: reading and writing their forms.
//
// Form by extension on both sides: `.txt` text, `.json` protobuf's canonical JSON, `.onnx` an ONNX
// model, `.pt2` an archive of torch.export, anything else binary; a `.gz` behind it compresses
// (input: recognised by content). `-` is stdin or stdout. Input without a telling extension is
// recognised by content.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/pieces.h"
#include "ir/graph.h"

namespace epweave {

// ONNX models with IR version 8 and 10; archives of torch.export, which can only be read.
enum class Format { kBinary, kText, kJson, kOnnx, kOnnxIr10, kPt2 };
std::span<const std::string_view> format_names();  // "binary", "text", "json", "onnx", "onnx-ir10", "pt2"
std::optional<Format> find_format(std::string_view name);
// By extension, "-" and unknown extensions give binary.
Format format_of_path(std::string_view path);

// Decoding and encoding. `decode` throws InputError naming `path`. A decoded graph may still break
// the invariants of analysis/verify.h. Graphs that are to be compared share a context: give the
// first one's to the second.
Graph decode(std::string_view bytes, Format format, const std::string& path,
             std::shared_ptr<Context> context = nullptr);
std::string encode(const Graph& graph, Format format);  // throws UsageError for kPt2

// Canonical binary form; what hashes are taken of.
std::string encode_binary(const Graph& graph);
void encode_binary(const Graph& graph, const GiveBytes& give);
std::string sha256_hex(std::string_view bytes);
// Of the bytes that `produce` gives, one piece behind the other.
std::string sha256_of_pieces(const ProduceBytes& produce);
// Of the canonical binary form.
std::string sha256_of_graph(const Graph& graph);

// Reads and decodes. `format` overrides what extension and content say. Throws InputError
// (unreadable, undecodable).
Graph read_graph(const std::string& path, std::optional<Format> format = std::nullopt,
                 std::shared_ptr<Context> context = nullptr);

// Encodes and writes whole or not at all.
void write_graph(const Graph& graph, const std::string& path, std::optional<Format> format = std::nullopt);
// Gives what write_graph writes. Throws UsageError for kPt2.
void encode_file(const Graph& graph, const std::string& path, std::optional<Format> format,
                 const GiveBytes& give);

// A file that appears whole at `commit` or not at all. Several files of one command are committed
// together once all are written. What is given goes to a file without a name, which is gone if the
// program is killed; where the file system has none, to a temporary file beside `path`. A stream or
// device ("-", /dev/stdout, a pipe) takes its bytes at once. Throws InputError where it cannot be
// made or written.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();  // removes what is not committed

  void write(std::string_view bytes);
  void commit();

 private:
  enum class Kind { kStream, kUnnamed, kTemporary };
  void open_new();
  void give_name();

  std::string path_;  // where links lead
  std::string temporary_;
  Kind kind_ = Kind::kStream;
  int file_ = -1;
};

// Throws InputError where an OutputFile could not be made: to be asked before long work. Leaves
// nothing behind.
void require_writable(const std::string& path);

bool file_exists(const std::string& path);
// Whether both paths name one file, through links too, existing or not. Streams and devices are not
// files.
bool is_same_file(const std::string& a, const std::string& b);

// The whole of a file or stdin, and its atomic counterpart. Throw InputError.
std::string read_bytes(const std::string& path);
void write_bytes(const std::string& path, std::string_view bytes);
// The same for what is too large to hold at once.
void write_pieces(const std::string& path, const ProduceBytes& produce);

std::string gzip(std::string_view bytes);    // deterministic: no name, no time
std::string gunzip(std::string_view bytes);  // throws InputError

}  // namespace epweave
