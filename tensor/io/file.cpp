#include "file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "../raise.h"

namespace heed::detail {
namespace fs = std::filesystem;
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

/// Largest piece given to one system call; every system takes this much.
constexpr std::size_t piece = std::size_t{1} << 30;

[[noreturn]] void refuse_kind(const std::string& where, fs::file_type type) {
  raise<IoError>("{}: not a regular file: it is {}", where, type == fs::file_type::directory ? "a folder" : "a device, pipe or socket");
}

}  // namespace

void MemorySource::read(std::uint64_t offset, std::span<std::byte> out) {
  if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
}

FileSource::FileSource(const char* op, const fs::path& path) : Source(fmt::format("{}: {}", op, path.string()), 0), descriptor_(-1) {
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) raise<IoError>("{}: cannot open: {}", where_, reason(errno));
  struct stat status;
  const int error = ::fstat(descriptor_, &status) == 0 ? 0 : errno;
  if (error != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    if (error != 0) raise<IoError>("{}: cannot examine: {}", where_, reason(error));
    refuse_kind(where_, S_ISDIR(status.st_mode) ? fs::file_type::directory : fs::file_type::unknown);
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

FileSource::~FileSource() { ::close(descriptor_); }

void FileSource::read(std::uint64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t n = ::pread(descriptor_, out.data(), std::min(out.size(), piece), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) raise<IoError>("{}: cannot read: {}", where_, reason(errno));
    if (n == 0) raise<IoError>("{}: the file became shorter while it was read: {} of {} bytes are left", where_, offset, size_);
    offset += static_cast<std::uint64_t>(n);
    out = out.subspan(static_cast<std::size_t>(n));
  }
}

AtomicFile::AtomicFile(const char* op, const fs::path& path) : where_(fmt::format("{}: {}", op, path.string())), target_(path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none) raise<IoError>("{}: cannot examine: {}", where_, error.message());
  const bool replaces = fs::exists(status);
  if (replaces && !fs::is_regular_file(status)) refuse_kind(where_, status.type());
  if (replaces) {
    target_ = fs::canonical(path, error);
    if (error) raise<IoError>("{}: cannot resolve: {}", where_, error.message());
  }
  if (!target_.has_filename()) raise<IoError>("{}: not the name of a file", where_);

  static std::atomic<unsigned> counter{0};
  for (int attempt = 0; descriptor_ < 0 && attempt < 100; ++attempt) {
    temporary_ = target_.parent_path() / fmt::format(".heed-{}-{}.tmp", ::getpid(), counter++);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) break;
  }
  if (descriptor_ < 0) fail("cannot make a temporary file in the same folder");
  // Whoever may not change permissions still gets the file.
  if (replaces) (void)!::fchmod(descriptor_, static_cast<mode_t>(status.permissions() & fs::perms::mask));
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::fail(const char* what) const { raise<IoError>("{}: {}: {}", where_, what, reason(errno)); }

void AtomicFile::write(Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(descriptor_, bytes.data(), std::min(bytes.size(), piece));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("cannot write");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

void AtomicFile::commit() {
  // Before the new name is seen the bytes must be on the disk, or a power cut leaves an empty file in the place of a good one.
  if (::fsync(descriptor_) != 0 && errno != EINVAL) fail("cannot flush");
  const int closed = ::close(std::exchange(descriptor_, -1));
  if (closed != 0) fail("cannot close");
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail("cannot rename the temporary file");
  temporary_.clear();
  // The new name itself lasts when the folder is flushed; the file is whole either way, so not every system must be able to.
  const fs::path folder = target_.has_parent_path() ? target_.parent_path() : fs::path(".");
  if (const int descriptor = ::open(folder.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY); descriptor >= 0) {
    (void)::fsync(descriptor);
    ::close(descriptor);
  }
}

}  // namespace heed::detail
