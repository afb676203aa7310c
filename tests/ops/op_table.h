#pragma once

#include <heed/tensor/tensor.h>

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

// Every op with inputs on which it is smooth: what the tests check, and what benchmarks run. A row for every function of autograd/ops.h (a test
// compares the two), with variants for what its arguments can ask for.

namespace heed::ops {

/// Where the elements of an input lie: away from kinks and poles.
struct Range {
  enum class Kind {
    uniform,      ///< between low and high
    either_sign,  ///< the magnitude is between low and high, the sign is random
    distinct,     ///< evenly spread between low and high, in random order: no two are close
  };
  Kind kind;
  double low, high;
};
constexpr Range between(double low, double high) { return {Range::Kind::uniform, low, high}; }
constexpr Range either_sign(double low, double high) { return {Range::Kind::either_sign, low, high}; }
constexpr Range distinct(double low, double high) { return {Range::Kind::distinct, low, high}; }

struct Input {
  Dims shape;
  Range range;
};
inline Input in(const Dims& shape, Range range = between(-1, 1)) { return {shape, range}; }

using Tensors = std::vector<Tensor>;

/// One result or several.
struct Results : Tensors {
  Results(Tensor t) { push_back(std::move(t)); }
  Results(Tensors ts) : Tensors(std::move(ts)) {}
};

enum class Size {
  small,  ///< few enough elements for derivatives by differences
  large,  ///< enough that vectors, threads and oneDNN take part
};

struct OpRow {
  std::string name;  ///< as in autograd/ops.h, with `detail::` where it stands there
  std::string variant;
  std::vector<Input> inputs;
  std::function<Results(const Tensors&)> function;
  Size size = Size::small;
  /// How far f32 may be from f64, in units of the f32 epsilon times the largest magnitude of the result.
  double f32_bound = 8;
};
std::ostream& operator<<(std::ostream&, const OpRow&);

/// All rows, the same order in every run.
const std::vector<OpRow>& op_table();
/// The names in it, each once, in the order of their first rows.
std::vector<std::string> op_names();

/// Leaves with the row's shapes and ranges. The values are those of f32 numbers, so that both dtypes begin with the same.
Tensors make_inputs(const OpRow&, DType, std::uint64_t seed = 1);

// The families, one file each, as in autograd/ops/.
std::vector<OpRow> arithmetic_rows();
std::vector<OpRow> pointwise_rows();
std::vector<OpRow> choose_rows();
std::vector<OpRow> logic_rows();
std::vector<OpRow> reduce_rows();
std::vector<OpRow> view_rows();
std::vector<OpRow> join_rows();
std::vector<OpRow> matmul_rows();
std::vector<OpRow> softmax_rows();
std::vector<OpRow> layer_norm_rows();
std::vector<OpRow> lookup_rows();
std::vector<OpRow> loss_rows();
std::vector<OpRow> attention_rows();

}  // namespace heed::ops
