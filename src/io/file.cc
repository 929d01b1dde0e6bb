#include "io/file.h"

#define OPENSSL_SUPPRESS_DEPRECATED  // SHA256_*: what replaces it needs all of libcrypto, a millisecond at start
#include <openssl/sha.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <google/protobuf/arena.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/util/json_util.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "epweave.pb.h"
#include "io/crc32.h"
#include "io/onnx/onnx_codec.h"
#include "io/proto/proto_codec.h"
#include "io/pt2/pt2_archive.h"
#include "io/pt2/pt2_codec.h"
#include "ir/text/text.h"

namespace epweave {
namespace {

constexpr std::string_view kMagic =
    "\x0a\x07"
    "epweave";                            // field 1 of File
constexpr std::size_t kCrcFieldSize = 5;  // tag and fixed32 of field 15
constexpr char kCrcTag = 0x7d;

// protobuf reports bad UTF-8 and the like on stderr by itself; our errors say it once and with the
// file.
void silence_protobuf_log() {
  static const bool done = [] {
    google::protobuf::SetLogHandler(nullptr);
    return true;
  }();
  static_cast<void>(done);
}

std::string name_of_input(const std::string& path) {
  return path == "-" ? "standard input" : path;
}

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw InputError(fmt::format("{}: {}", path, what));
}

Graph decode_binary(std::string_view bytes, const std::string& path, std::shared_ptr<Context> context) {
  silence_protobuf_log();
  if (!bytes.starts_with(kMagic))
    fail(path, "not an epweave graph in any form; epweave.export makes one of a torch.fx graph");
  if (bytes.size() < kMagic.size() + kCrcFieldSize) fail(path, "truncated");
  const std::string_view tail = bytes.substr(bytes.size() - kCrcFieldSize);
  if (tail[0] != kCrcTag) fail(path, "truncated or altered: it does not end with its checksum");
  std::uint32_t recorded = 0;
  for (std::size_t i = 4; i >= 1; --i) recorded = recorded << 8 | static_cast<std::uint8_t>(tail[i]);
  if (crc32_of(bytes.substr(0, bytes.size() - kCrcFieldSize)) != recorded)
    fail(path, "truncated or altered: the checksum does not match the content");
  if (bytes.size() > INT32_MAX) fail(path, "larger than 2 GiB");

  return decode_proto(bytes, path, std::move(context));
}

// Refuses what is larger than protobuf's limit.
std::vector<std::string> encode_message(const Graph& graph) {
  std::vector<std::string> pieces = encode_proto(graph);
  std::size_t size = 0;
  for (const std::string& piece : pieces) size += piece.size();
  if (size > INT32_MAX) throw InputError("the graph is larger than 2 GiB in binary form");
  return pieces;
}

std::string encode_json(const Graph& graph) {
  silence_protobuf_log();
  google::protobuf::Arena arena;
  auto* file = google::protobuf::Arena::CreateMessage<proto::File>(&arena);
  std::string bytes;
  for (const std::string& piece : encode_message(graph)) bytes += piece;
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                               static_cast<int>(bytes.size()));
  input.SetRecursionLimit(INT32_MAX);  // our own bytes
  EPWEAVE_CHECK(file->ParseFromCodedStream(&input));
  // Canonical JSON has no place for fields that the schema lacks.
  proto::File known;
  known.CopyFrom(*file);
  known.DiscardUnknownFields();
  if (known.ByteSizeLong() != file->ByteSizeLong())
    throw InputError(
        "the graph has fields of a newer format, which JSON cannot carry: use the binary or text form");
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(*file, &text, options);
  if (!status.ok())
    throw InputError(fmt::format("the graph has no JSON form ({}): use the binary or text form",
                                 status.message().as_string()));
  return text;
}

// What scripts/epweave_fx.py to-dump writes: {"format": "fx-dump-1", ..}. A graph made of a dump
// has the same word as its producer.
bool is_fx_dump(std::string_view bytes) {
  constexpr std::string_view kKey = "\"format\"";
  const std::string_view head = bytes.substr(0, 200);
  const std::size_t key = head.find(kKey);
  if (key == head.npos) return false;
  const std::size_t value = head.find_first_not_of(" \t\r\n:", key + kKey.size());
  return value != head.npos && head.substr(value).starts_with("\"fx-dump-");
}

Graph decode_json(std::string_view bytes, const std::string& path, std::shared_ptr<Context> context) {
  silence_protobuf_log();
  google::protobuf::Arena arena;
  auto* file = google::protobuf::Arena::CreateMessage<proto::File>(&arena);
  const auto status = google::protobuf::util::JsonStringToMessage(
      google::protobuf::StringPiece(bytes.data(), bytes.size()), file);
  if (!status.ok() && is_fx_dump(bytes))
    fail(path,
         fmt::format(
             "a dump of torch.fx, not a graph: scripts/epweave_fx.py from-dump {} OUT.epw makes one of it",
             path));
  if (!status.ok()) {
    std::string message = status.message().as_string();
    if (message.starts_with(": ")) message.erase(0, 2);  // behind the field, where it is the whole document
    fail(path, fmt::format("not the JSON form of a graph: {}", message));
  }
  const std::string message = file->SerializeAsString();
  return decode_proto(message, path, std::move(context));
}

std::string encode_onnx(const Graph& graph, OnnxIr ir) {
  google::protobuf::Arena arena;
  auto* model = google::protobuf::Arena::CreateMessage<onnx::ModelProto>(&arena);
  encode_onnx(graph, ir, *model);
  std::string bytes;
  silence_protobuf_log();
  if (!model->SerializeToString(&bytes)) throw InputError("the graph is larger than 2 GiB as an ONNX model");
  return bytes;
}

Graph decode_onnx(std::string_view bytes, const std::string& path, std::shared_ptr<Context> context) {
  silence_protobuf_log();
  if (bytes.size() > INT32_MAX) fail(path, "larger than 2 GiB");
  google::protobuf::Arena arena;
  auto* model = google::protobuf::Arena::CreateMessage<onnx::ModelProto>(&arena);
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedInputStream input(&stream);
  if (!model->ParseFromCodedStream(&input)) fail(path, "not an ONNX model (not a valid protobuf message)");
  return epweave::decode_onnx(*model, path, std::move(context));
}

bool is_gzip(std::string_view bytes) {
  return bytes.starts_with("\x1f\x8b");
}

std::string_view without_gz(std::string_view path) {
  return path.ends_with(".gz") ? path.substr(0, path.size() - 3) : path;
}

// What the bytes are, where neither option nor extension says.
Format format_of_content(std::string_view bytes) {
  if (bytes.starts_with(kMagic)) return Format::kBinary;
  const std::size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first != bytes.npos && bytes[first] == '{') return Format::kJson;
  if (bytes.starts_with("epweave")) return Format::kText;
  if (bytes.starts_with("PK\x03\x04")) return Format::kPt2;
  if (bytes.starts_with('\x08')) return Format::kOnnx;  // field 1 of ModelProto, the IR version
  return Format::kBinary;
}

void close_file(int fd) {
  if (fd > STDERR_FILENO) ::close(fd);
}

struct FileDescriptor {
  explicit FileDescriptor(int value) : fd(value) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() { close_file(fd); }
  int fd;
};

void write_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path, fmt::format("cannot write: {}", std::strerror(errno)));
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

}  // namespace

std::span<const std::string_view> format_names() {
  static constexpr std::array<std::string_view, 6> kNames = {"binary", "text",      "json",
                                                             "onnx",   "onnx-ir10", "pt2"};
  return kNames;  // in the order of Format
}

std::optional<Format> find_format(std::string_view name) {
  const auto found = std::ranges::find(format_names(), name);
  if (found == format_names().end()) return std::nullopt;
  return static_cast<Format>(found - format_names().begin());
}

Format format_of_path(std::string_view path) {
  path = without_gz(path);
  if (path.ends_with(".txt")) return Format::kText;
  if (path.ends_with(".json")) return Format::kJson;
  if (path.ends_with(".onnx")) return Format::kOnnx;
  if (path.ends_with(".pt2")) return Format::kPt2;
  return Format::kBinary;
}

void encode_binary(const Graph& graph, const GiveBytes& give) {
  std::uint32_t crc = 0;
  for (const std::string& piece : encode_message(graph)) {
    crc = crc32_of(piece, crc);
    give(piece);
  }
  std::string last(1, kCrcTag);
  for (int shift = 0; shift < 32; shift += 8) last += static_cast<char>(crc >> shift & 0xff);
  give(last);
}

std::string encode_binary(const Graph& graph) {
  std::string bytes;
  encode_binary(graph, [&](std::string_view piece) { bytes += piece; });
  return bytes;
}

std::string encode(const Graph& graph, Format format) {
  switch (format) {
    case Format::kBinary:
      return encode_binary(graph);
    case Format::kText:
      return print_text(graph);
    case Format::kJson:
      return encode_json(graph);
    case Format::kOnnx:
      return encode_onnx(graph, OnnxIr::k8);
    case Format::kOnnxIr10:
      return encode_onnx(graph, OnnxIr::k10);
    case Format::kPt2:
      throw UsageError("archives of torch.export (.pt2) can only be read: write another form");
  }
  return {};
}

Graph decode(std::string_view bytes, Format format, const std::string& path,
             std::shared_ptr<Context> context) {
  if (!context) context = std::make_shared<Context>();
  switch (format) {
    case Format::kBinary:
      return decode_binary(bytes, path, std::move(context));
    case Format::kText:
      return parse_text(bytes, path, std::move(context));
    case Format::kJson:
      return decode_json(bytes, path, std::move(context));
    case Format::kOnnx:
    case Format::kOnnxIr10:
      return decode_onnx(bytes, path, std::move(context));
    case Format::kPt2:
      return decode_pt2(read_pt2_program({path, bytes}), path, std::move(context));
  }
  return {};
}

std::string sha256_hex(std::string_view bytes) {
  return sha256_of_pieces([&](const GiveBytes& give) { give(bytes); });
}

std::string sha256_of_pieces(const ProduceBytes& produce) {
  SHA256_CTX state;
  EPWEAVE_CHECK(SHA256_Init(&state) == 1);
  produce(
      [&](std::string_view piece) { EPWEAVE_CHECK(SHA256_Update(&state, piece.data(), piece.size()) == 1); });
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  EPWEAVE_CHECK(SHA256_Final(digest.data(), &state) == 1);
  std::string hex;
  for (const unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

std::string sha256_of_graph(const Graph& graph) {
  return sha256_of_pieces([&](const GiveBytes& give) { encode_binary(graph, give); });
}

std::string read_bytes(const std::string& path) {
  const bool is_stdin = path == "-";
  const std::string name = name_of_input(path);
  const FileDescriptor file(is_stdin ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) fail(name, fmt::format("cannot open: {}", std::strerror(errno)));
  std::string bytes;
  struct stat status {};
  if (::fstat(file.fd, &status) == 0 && S_ISREG(status.st_mode))
    bytes.reserve(static_cast<std::size_t>(status.st_size));
  std::array<char, 1 << 16> block;
  for (;;) {
    const ssize_t n = ::read(file.fd, block.data(), block.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(name, fmt::format("cannot read: {}", std::strerror(errno)));
    if (n == 0) return bytes;
    bytes.append(block.data(), static_cast<std::size_t>(n));
  }
}

namespace {

// Where a path leads through symbolic links, so that a rename replaces the file and not the link.
std::string follow_links(std::string path) {
  std::error_code error;
  for (int depth = 0; depth < 40 && std::filesystem::is_symlink(path, error); ++depth) {
    const std::filesystem::path target = std::filesystem::read_symlink(path, error);
    if (error) return path;
    path = (target.is_absolute() ? target : std::filesystem::path(path).parent_path() / target).string();
  }
  return path;
}

// Names of open files, such as /dev/stdout and /proc/self/fd/1: written to, whatever they lead to.
bool is_open_file_name(std::string_view path) {
  return path.starts_with("/dev/") || path.starts_with("/proc/");
}

// What a name beside the path begins with: the path, or as much of it as leaves room for an ending
// where the file's name is as long as names may be.
std::string temporary_stem(const std::string& path) {
  constexpr std::size_t kMostBytes = 200;
  const std::size_t name = path.rfind('/') + 1;  // 0 without a folder
  return path.substr(0, name + kMostBytes);
}

// A path that leads to an open file.
std::string descriptor_path(int file) {
  return fmt::format("/proc/self/fd/{}", file);
}

}  // namespace

OutputFile::OutputFile(const std::string& given_path) {
  if (given_path.empty()) throw InputError("the name of the file to write is empty");
  if (given_path == "-" || given_path == "/dev/stdout") {
    path_ = "standard output";
    file_ = STDOUT_FILENO;
    return;
  }
  path_ = is_open_file_name(given_path) ? given_path : follow_links(given_path);
  // Renaming over a device or pipe would replace it.
  struct stat status {};
  const bool exists = ::stat(path_.c_str(), &status) == 0;
  if (!exists && errno == ENAMETOOLONG)
    fail(path_, fmt::format("cannot be written: {}", std::strerror(errno)));
  if (exists && (!S_ISREG(status.st_mode) || is_open_file_name(path_))) {
    file_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    if (file_ < 0) fail(path_, fmt::format("cannot open for writing: {}", std::strerror(errno)));
    return;
  }
  open_new();
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::fchmod(file_, exists ? status.st_mode & 07777 : 0666 & ~mask);
}

void OutputFile::open_new() {
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  file_ = ::open(folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (file_ >= 0 && ::access(descriptor_path(file_).c_str(), F_OK) == 0) {
    kind_ = Kind::kUnnamed;
    return;
  }
  close_file(file_);
  std::string temporary = temporary_stem(path_) + ".XXXXXX";
  file_ = ::mkostemp(temporary.data(), O_CLOEXEC);
  const int reason = errno;
  if (file_ < 0 && reason == ENOENT && !file_exists(folder.string()))
    fail(path_, fmt::format("there is no folder {}", folder.string()));
  if (file_ < 0) fail(path_, fmt::format("cannot be written: {}", std::strerror(reason)));
  temporary_ = std::move(temporary);
  kind_ = Kind::kTemporary;
}

OutputFile::~OutputFile() {
  close_file(file_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::write(std::string_view bytes) {
  write_all(file_, bytes, path_);
}

// A name of its own beside `path_`: a file without a name cannot replace one that is there.
void OutputFile::give_name() {
  for (int attempt = 0;; ++attempt) {
    const std::string name = fmt::format("{}.{}-{}", temporary_stem(path_), ::getpid(), attempt);
    if (::linkat(AT_FDCWD, descriptor_path(file_).c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
      temporary_ = name;
      return;
    }
    if (errno != EEXIST) fail(path_, fmt::format("cannot be written: {}", std::strerror(errno)));
  }
}

void OutputFile::commit() {
  if (kind_ == Kind::kStream) return;
  if (kind_ == Kind::kUnnamed) give_name();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    fail(path_, fmt::format("cannot rename to it: {}", std::strerror(errno)));
  temporary_.clear();
}

void require_writable(const std::string& path) {
  struct stat status {};
  const bool is_stream =
      path == "-" || is_open_file_name(path) ||
      (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode));
  if (!is_stream) OutputFile{path};
}

bool file_exists(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0;
}

bool is_same_file(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty() || a == "-" || b == "-") return false;
  struct stat x {
  }, y{};
  const bool has_a = ::stat(a.c_str(), &x) == 0, has_b = ::stat(b.c_str(), &y) == 0;
  if (has_a && has_b) return S_ISREG(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
  if (has_a || has_b) return false;
  auto resolved = [](const std::string& path) {
    std::error_code error;
    return std::filesystem::weakly_canonical(std::filesystem::absolute(follow_links(path), error), error);
  };
  const std::filesystem::path of_a = resolved(a);
  return !of_a.empty() && of_a == resolved(b);
}

void write_bytes(const std::string& path, std::string_view bytes) {
  write_pieces(path, [&](const GiveBytes& give) { give(bytes); });
}

void write_pieces(const std::string& path, const ProduceBytes& produce) {
  OutputFile file(path);
  produce([&](std::string_view bytes) { file.write(bytes); });
  file.commit();
}

std::string gzip(std::string_view bytes) {
  z_stream stream{};
  EPWEAVE_CHECK(deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) ==
                Z_OK);
  std::string out(deflateBound(&stream, static_cast<uLong>(bytes.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EPWEAVE_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// Members one after another are one file, as RFC 1952 has it.
std::string gunzip(std::string_view bytes) {
  z_stream stream{};
  EPWEAVE_CHECK(inflateInit2(&stream, 15 + 16) == Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::string out;
  std::array<char, 1 << 16> block;
  int status = Z_OK;
  while (status == Z_OK && out.size() <= INT32_MAX) {
    stream.next_out = reinterpret_cast<Bytef*>(block.data());
    stream.avail_out = block.size();
    status = inflate(&stream, Z_NO_FLUSH);
    out.append(block.data(), block.size() - stream.avail_out);
    if (status == Z_STREAM_END && stream.avail_in > 0) status = inflateReset(&stream);
  }
  inflateEnd(&stream);
  if (out.size() > INT32_MAX) throw InputError("gzip data of more than 2 GiB");
  if (status != Z_STREAM_END) throw InputError("gzip data is truncated or damaged");
  return out;
}

Graph read_graph(const std::string& path, std::optional<Format> format, std::shared_ptr<Context> context) {
  const std::string name = name_of_input(path);
  // An archive can hold weights of many gigabytes beside the program.
  if (path != "-" && format.value_or(format_of_path(path)) == Format::kPt2)
    return decode_pt2(read_pt2_program({path}), path,
                      context ? std::move(context) : std::make_shared<Context>());
  std::string bytes = read_bytes(path);
  if (is_gzip(bytes)) {
    try {
      bytes = gunzip(bytes);
    } catch (const InputError& error) {
      fail(name, error.what());
    }
  }
  if (!format && path != "-") {
    const Format by_extension = format_of_path(path);
    // The binary form begins as no other form can.
    if (by_extension != Format::kBinary && !bytes.starts_with(kMagic)) format = by_extension;
  }
  if (bytes.empty()) fail(name, "empty");
  return decode(bytes, format.value_or(format_of_content(bytes)), name, std::move(context));
}

void encode_file(const Graph& graph, const std::string& path, std::optional<Format> given,
                 const GiveBytes& give) {
  const Format format = given.value_or(format_of_path(path));
  if (path.ends_with(".gz"))
    give(gzip(encode(graph, format)));
  else if (format == Format::kBinary)
    encode_binary(graph, give);
  else
    give(encode(graph, format));
}

void write_graph(const Graph& graph, const std::string& path, std::optional<Format> format) {
  write_pieces(path, [&](const GiveBytes& give) { encode_file(graph, path, format, give); });
}

}  // namespace epweave
