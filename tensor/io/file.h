#pragma once

// Private: where the readers of files take their bytes from and where the writers put them.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace heed::detail {

using Bytes = std::span<const std::byte>;

/// Bytes of a known number that a reader may look at in any order, so that tensors are read into their own storage without a copy of the file.
class Source {
 public:
  virtual ~Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  std::uint64_t size() const { return size_; }
  /// What stands first in every error text: "load_npy: w.npy".
  const std::string& where() const { return where_; }
  /// Fills `out` with the bytes from `offset` on; the caller keeps both inside of `size()`. IoError when they cannot be had.
  virtual void read(std::uint64_t offset, std::span<std::byte> out) = 0;

 protected:
  Source(std::string where, std::uint64_t size) : where_(std::move(where)), size_(size) {}
  std::string where_;
  std::uint64_t size_;
};

class MemorySource final : public Source {
 public:
  MemorySource(const char* op, Bytes bytes) : Source(std::string(op) + ": memory", bytes.size()), bytes_(bytes) {}
  void read(std::uint64_t offset, std::span<std::byte> out) override;

 private:
  Bytes bytes_;
};

/// A regular file. Read, not mapped: a file that another process shortens meanwhile is an error here and would be a signal there.
class FileSource final : public Source {
 public:
  FileSource(const char* op, const std::filesystem::path&);
  ~FileSource() override;
  void read(std::uint64_t offset, std::span<std::byte> out) override;

 private:
  int descriptor_;
};

/// Takes the bytes of a file from first to last.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void write(Bytes) = 0;
};

class MemorySink final : public Sink {
 public:
  void write(Bytes bytes) override { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// A file that appears under its name complete or not at all: written under another name in the same folder, then renamed. Unless `commit`
/// was called and returned, an older file under the name is as it was, and the temporary one is removed.
class AtomicFile final : public Sink {
 public:
  /// IoError when the folder cannot be written to, or when the path names something that is not a regular file (a folder, a device).
  /// A symbolic link is followed; the permissions of an older file are kept.
  AtomicFile(const char* op, const std::filesystem::path&);
  ~AtomicFile() override;
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(Bytes) override;
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;

  std::string where_;
  std::filesystem::path target_, temporary_;
  int descriptor_ = -1;
};

}  // namespace heed::detail
