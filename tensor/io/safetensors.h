#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "../tensor.h"

namespace heed {

/// The tensors of a safetensors file by name. F32, F64, I64 and BOOL keep their type; F16 and BF16 become f32, exactly; I32, I16, I8 and U8
/// become i64. Names that were saved for one tensor are handles of one tensor again (see save_safetensors).
///
/// IoError naming the rule and the key for everything that is not to the letter: a header longer than the file or than 100,000,000 bytes, a
/// key twice, an unknown key, a range that does not fit its shape, a hole or an overlap between ranges, bytes left over, any other dtype. No
/// length is believed before it was compared with the size of the file.
std::map<std::string, Tensor> load_safetensors(const std::filesystem::path&);

/// The strings of `__metadata__`; empty when there are none. Checks the header as load_safetensors does, apart from the dtypes.
std::map<std::string, std::string> safetensors_metadata(const std::filesystem::path&);

/// Writes the tensors, views in their logical order. The file appears complete or not at all. IoError, also for an undefined tensor, a tensor
/// named `__metadata__`, and a name or string that is not UTF-8.
///
/// Tensors that share their storage and layout are stored once, under the first of their names in the order of the map; for each other
/// name the metadata get an entry "heed.tied:OTHER" = "FIRST". Entries that begin with "heed.tied:" belong to the writer: those given in
/// `metadata`, as from an earlier file, are left out.
void save_safetensors(const std::filesystem::path&, const std::map<std::string, Tensor>&, const std::map<std::string, std::string>& metadata = {});

namespace detail {

/// A tensor of a file as its header describes it, also of a dtype that is not read.
struct SafetensorsEntry {
  std::string name, dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t bytes;
};
/// In the order of the data; the header is checked as by safetensors_metadata.
std::vector<SafetensorsEntry> list_safetensors(const std::filesystem::path&);

/// Tensors and strings of one file, as load_safetensors and safetensors_metadata give them. The file is opened once, so that the two belong together
/// also where another takes its place meanwhile. `op` begins the error texts.
struct SafetensorsFile {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
};
SafetensorsFile load_safetensors_file(const char* op, const std::filesystem::path&);

// The same in memory.
std::map<std::string, Tensor> read_safetensors(std::span<const std::byte> file);
std::map<std::string, std::string> read_safetensors_metadata(std::span<const std::byte> file);
std::vector<std::byte> write_safetensors(const std::map<std::string, Tensor>&, const std::map<std::string, std::string>& metadata = {});
}  // namespace detail

}  // namespace heed
