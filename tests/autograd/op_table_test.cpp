#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "op_table.h"

namespace heed::test {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(std::string(HEED_SOURCE_DIR "/") + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// How often each function that returns a tensor, several, or attention is declared, read from a header's text; `detail::` before those in there.
std::map<std::string, int> declared(const std::string& path) {
  std::map<std::string, int> found;
  std::istringstream lines(text_of(path));
  const std::regex function(R"(^(?:Tensor|std::vector<Tensor>|Attention) (operator[^\s(]+|\w+)\(.*)");
  std::string prefix;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("namespace detail {")) prefix = "detail::";
    if (line.starts_with("}  // namespace detail")) prefix.clear();
    if (std::smatch match; std::regex_match(line, match, function)) ++found[prefix + match[1].str()];
  }
  return found;
}

std::map<std::string, std::vector<const ops::OpRow*>> rows_by_name() {
  std::map<std::string, std::vector<const ops::OpRow*>> rows;
  for (const ops::OpRow& row : ops::op_table()) rows[row.name].push_back(&row);
  return rows;
}

TEST(OpTable, every_function_of_ops_h_has_a_row) {
  const auto rows = rows_by_name();
  std::map<std::string, int> functions = declared("autograd/ops.h");
  ASSERT_GT(functions.size(), 60u) << "the header was not understood";
  ASSERT_TRUE(functions.contains("split") && functions.contains("operator+") && functions.contains("detail::sum_to"));
  ASSERT_EQ(functions["operator-"], 3);
  functions.merge(declared("autograd/attention.h"));
  ASSERT_TRUE(functions.contains("scaled_dot_product_attention"));
  for (const auto& [name, overloads] : functions) {
    ASSERT_TRUE(rows.contains(name)) << name << " has no row";
    EXPECT_GE(rows.at(name).size(), static_cast<std::size_t>(overloads)) << name << " has fewer rows than overloads";
  }
}

TEST(OpTable, every_row_is_of_a_function) {
  std::map<std::string, int> functions = declared("autograd/ops.h");
  functions.merge(declared("autograd/attention.h"));
  const std::set<std::string> members{"operator[]", "clone", "contiguous", "to"};
  for (const auto& [name, rows] : rows_by_name()) EXPECT_TRUE(functions.contains(name) || members.contains(name)) << name;
}

TEST(OpTable, every_op_has_a_variant_without_elements) {
  for (const auto& [name, rows] : rows_by_name()) {
    const bool found = std::any_of(rows.begin(), rows.end(), [](const ops::OpRow* row) {
      return std::any_of(row->inputs.begin(), row->inputs.end(), [](const ops::Input& i) { return i.shape.contains(0); });
    });
    EXPECT_TRUE(found) << name;
  }
}

TEST(OpTable, variants_have_names_of_their_own) {
  for (const auto& [name, rows] : rows_by_name()) {
    std::set<std::string> variants;
    for (const ops::OpRow* row : rows) EXPECT_TRUE(variants.insert(row->variant).second) << name << ": " << row->variant;
  }
}

TEST(OpTable, inputs_keep_to_their_ranges_and_repeat) {
  for (const ops::OpRow& row : ops::op_table()) {
    const ops::Tensors a = ops::make_inputs(row, f64), b = ops::make_inputs(row, f32);
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(a[i].shape(), row.inputs[i].shape) << row;
      EXPECT_EQ(a[i].to_vector<double>(), b[i].to_vector<double>()) << row;
      const ops::Range range = row.inputs[i].range;
      const bool folded = range.kind == ops::Range::Kind::either_sign;
      for (double v : a[i].to_vector<double>()) {
        EXPECT_GE(folded ? std::abs(v) : v, range.low - 1e-6) << row;
        EXPECT_LE(folded ? std::abs(v) : v, range.high + 1e-6) << row;
      }
    }
  }
}

}  // namespace
}  // namespace heed::test
