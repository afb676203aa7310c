#pragma once

#include <gtest/gtest.h>
#include <heed/heed.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "../temporary_folder.h"

namespace heed::test {

/// A file of reference values from PyTorch, in tests/golden/.
class Golden {
 public:
  explicit Golden(const std::string& name) {
    const std::filesystem::path path = std::filesystem::path(HEED_SOURCE_DIR) / "tests/golden" / (name + ".safetensors");
    tensors_ = load_safetensors(path);
    metadata_ = safetensors_metadata(path);
  }
  /// Floats in the dtype asked for, others as stored.
  Tensor get(const std::string& name, DType dtype = f64) const {
    const Tensor& t = tensors_.at(name);
    return t.dtype() == f64 ? t.to(dtype) : t;
  }
  std::string text(const std::string& key) const { return metadata_.at(key); }
  double number(const std::string& key) const { return std::stod(text(key)); }

 private:
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// What results of the dtype are held to, relative to the largest value.
inline double tolerance(DType dtype) { return dtype == f64 ? 1e-9 : 2e-5; }

inline std::vector<double> values(const Tensor& t) { return t.to_vector<double>(); }

/// Elements differ by at most `tol` times the largest of `want`.
inline ::testing::AssertionResult near(const Tensor& got, const Tensor& want, double tol) {
  if (!got.defined()) return ::testing::AssertionFailure() << "undefined";
  if (got.shape() != want.shape()) return ::testing::AssertionFailure() << "shape " << got.shape() << ", not " << want.shape();
  const std::vector<double> a = values(got), b = values(want);
  double largest = 0;
  for (double v : b) largest = std::max(largest, std::fabs(v));
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!(std::fabs(a[i] - b[i]) <= tol * largest))
      return ::testing::AssertionFailure() << "element " << i << " is " << a[i] << ", not " << b[i] << " (largest " << largest << ")";
  return ::testing::AssertionSuccess();
}

/// Names and shapes as "weight (3, 2)", for lists that tests hold modules against.
template <nn::Module M>
std::vector<std::string> listed(const M& m) {
  std::vector<std::string> out;
  for (const auto& [name, t] : nn::named_parameters(m)) {
    std::ostringstream text;
    text << name << ' ' << t.shape();
    out.push_back(text.str());
  }
  return out;
}

/// The text of the E that `f` throws; empty when it throws nothing.
template <class E, class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return {};
}

/// A path at which nothing is, in a folder of its own.
class TemporaryFile {
 public:
  const std::filesystem::path& path() const { return path_; }

 private:
  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "file";
};

/// That number of threads while alive.
class Threads {
 public:
  explicit Threads(int n) : before_(detail::num_threads()) { set_num_threads(n); }
  ~Threads() { set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

/// What a user writes in an own project: several heads composed from ops.
class MultiHeadSelfAttention {
 public:
  MultiHeadSelfAttention(Index d_model, Index heads) : qkv(d_model, 3 * d_model), proj(d_model, d_model), heads_(heads) {}

  Attention operator()(const Tensor& x, const Mask& mask = {}) const {
    const std::vector<Tensor> parts = chunk(qkv(x), 3, -1);
    auto [out, weights] = scaled_dot_product_attention(split_heads(parts[0]), split_heads(parts[1]), split_heads(parts[2]), {.mask = mask});
    return {proj(flatten(transpose(out, -2, -3), -2)), weights};
  }

  void visit(nn::Visitor& v) { v("qkv", qkv), v("proj", proj); }

  nn::Linear qkv, proj;

 private:
  Tensor split_heads(const Tensor& t) const { return transpose(reshape(t, {t.size(0), t.size(1), heads_, t.size(2) / heads_}), 1, 2); }
  Index heads_;
};
static_assert(nn::Module<MultiHeadSelfAttention>);

/// A language model in small: the table that reads tokens also scores them.
struct Tied {
  nn::Embedding wte{5, 3};
  nn::Linear head{3, 5, false};
  Tied() { head.weight = wte.weight; }
  Tensor operator()(const Tensor& ids) const { return head(wte(ids)); }
  void visit(nn::Visitor& v) { v("wte", wte), v("head", head); }
};

}  // namespace heed::test
