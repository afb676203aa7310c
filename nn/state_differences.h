#pragma once

#include <string>
#include <vector>

namespace heed::detail {

/// What does not fit between tensors that are there and tensors that are given: a table in an error text.
class StateDifferences {
 public:
  void missing(std::string name, std::string what) { rows_.push_back({"missing", std::move(name), std::move(what)}); }
  void unexpected(std::string name, std::string what) { rows_.push_back({"unexpected", std::move(name), std::move(what)}); }
  void mismatched(std::string name, std::string what) { rows_.push_back({"mismatched", std::move(name), std::move(what)}); }

  bool empty() const { return rows_.empty(); }
  /// One line each: kind, name, what.
  std::string table() const;

 private:
  struct Row {
    const char* kind;
    std::string name, what;
  };
  std::vector<Row> rows_;
};

}  // namespace heed::detail
