#include <gmock/gmock.h>
#include <heed/autograd/op.h>
#include <heed/tensor/raise.h>

#include <string_view>

#include "op_test.h"

// What every op owes the graph: gradients for whichever inputs ask, nothing kept, nothing recorded under NoGrad, and a place in the user's program.

namespace heed::test {
namespace {

using testing::HasSubstr;

class OpGraph : public OpTest {};

TEST_P(OpGraph, every_subset_of_inputs) {
  for_each_row([](const OpRow& row) {
    const Tensors values = ops::make_inputs(row, f64);
    Tensors all = copies(values);
    const Results expected = row.function(require_grads(all));
    const Tensors along = cotangents(expected), dx = gradients(expected, all, along);
    for (unsigned subset = 0; subset < 1u << values.size(); ++subset) {
      SCOPED_TRACE("subset " + std::to_string(subset));
      Tensors x = copies(values);
      for (std::size_t i = 0; i < x.size(); ++i)
        if (subset >> i & 1) x[i].requires_grad_();
      const Results y = row.function(x);
      for (std::size_t o = 0; o < y.size(); ++o) {
        EXPECT_TRUE(same(y[o], expected[o]));
        EXPECT_TRUE(subset != 0 || !y[o].requires_grad()) << "output " << o << " has a history of nothing";
        if (y[o].requires_grad()) y[o].backward(along[o], {.retain_graph = true});
      }
      for (std::size_t i = 0; i < x.size(); ++i) EXPECT_TRUE(close(x[i].grad(), subset >> i & 1 ? dx[i] : Tensor(), 1e-13)) << "input " << i;
    }
  });
}

/// Gradients of first order, and of second: of the first ones' product with fixed numbers.
struct TwoOrders {
  Tensors first, second;
};
TwoOrders two_orders(const Tensors& outputs, const Tensors& inputs) {
  TwoOrders d;
  d.first = gradients(outputs, inputs, cotangents(outputs), {.create_graph = true});
  Tensors recorded;
  for (const Tensor& t : d.first)
    if (t.defined() && t.requires_grad()) recorded.push_back(t);
  d.second = gradients(recorded, inputs, cotangents(recorded, 3), {.retain_graph = true});
  return d;
}

TEST_P(OpGraph, one_tensor_in_every_slot_that_takes_it) {
  for_each_row([](const OpRow& row) {
    std::vector<std::size_t> slots;
    for (std::size_t i = 0; i < row.inputs.size(); ++i)
      if (row.inputs[i].shape == row.inputs[0].shape) slots.push_back(i);
    if (slots.size() < 2) return;
    Tensors values = ops::make_inputs(row, f64);
    for (std::size_t slot : slots) values[slot] = values[slots.back()];

    Tensors together = copies(values), apart = copies(values), aliases = copies(values);
    const Tensor one = leaf(values[slots.back()].clone());
    for (std::size_t slot : slots) together[slot] = together[slots.back()], aliases[slot] = detail::alias(one);
    const Results y = row.function(require_grads(together)), expected = row.function(require_grads(apart)), z = row.function(aliases);
    for (std::size_t o = 0; o < y.size(); ++o) ASSERT_TRUE(close(y[o], expected[o], 1e-14));
    if (differentiable(y).empty()) return;

    // The gradients of all slots add up.
    const Tensors of_slots = gradients(expected, apart, cotangents(expected));
    Tensor total = zeros(one.shape(), f64);
    for (std::size_t slot : slots)
      if (of_slots[slot].defined()) total = total + of_slots[slot];
    const TwoOrders dy = two_orders(y, {together[slots.back()]}), dz = two_orders(z, {one});
    EXPECT_TRUE(close(dy.first[0], total, 1e-13));
    EXPECT_TRUE(close(dz.first[0], total, 1e-13));
    EXPECT_TRUE(close(dy.second[0], dz.second[0], 1e-12));
  });
}

/// What is alive after `f` and everything it made are gone, beyond what was before.
template <class F>
void expect_nothing_left(const char* what, F f) {
  SCOPED_TRACE(what);
  f();  // whatever is made once and kept, such as ready primitives
  const detail::MemoryCounters before = detail::memory_counters();
  for (int i = 0; i < 3; ++i) f();
  const detail::MemoryCounters after = detail::memory_counters();
  EXPECT_EQ(after.live_tensors, before.live_tensors);
  EXPECT_EQ(after.live_nodes, before.live_nodes);
  EXPECT_EQ(after.live_bytes, before.live_bytes);
}

TEST_P(OpGraph, nothing_leaks) {
  for_each_row([](const OpRow& row) {
    const auto forward = [&] {
      Tensors x = ops::make_inputs(row, f32);
      const Results y = row.function(require_grads(x));
      return std::pair(x, y);
    };
    expect_nothing_left("forward only", [&] { (void)forward(); });
    expect_nothing_left("backward", [&] {
      const auto [x, y] = forward();
      for (const Tensor& root : differentiable(y)) root.backward(cotangents({root})[0], {.retain_graph = true});
    });
    expect_nothing_left("backward that frees", [&] {
      const auto [x, y] = forward();
      (void)gradients(y, x, cotangents(y));
    });
    expect_nothing_left("backward that is recorded", [&] {
      const auto [x, y] = forward();
      (void)two_orders(y, x);
    });
    expect_nothing_left("recorded, then dropped", [&] {
      const auto [x, y] = forward();
      (void)gradients(y, x, cotangents(y), {.create_graph = true});
    });
  });
}

/// Keeps who was recorded, and where from.
class Watcher final : public detail::RecordObserver {
 public:
  Watcher() : before_(std::exchange(detail::thread_state.observer, this)) {}
  ~Watcher() override { detail::thread_state.observer = before_; }

  void on_record(const OpName& op, std::span<Tensor>, std::span<const Tensor>) override {
    ++count;
    const std::string_view file = op.caller.file;
    if (file.find("tests/ops/") == file.npos)
      strangers += std::string(op.name) + " called at " + op.caller.file + ":" + std::to_string(op.caller.line) + "\n";
    if (file.find("tests/") == file.npos) named += detail::called_at(op.caller);
  }

  int count = 0;
  std::string strangers, named;  ///< not of the op table; what errors would say of those that are no test's at all

 private:
  detail::RecordObserver* before_;
};

TEST_P(OpGraph, passes_through_record_with_the_users_line) {
  for_each_row([](const OpRow& row) {
    Tensors x = ops::make_inputs(row, f64);
    require_grads(x);
    Watcher recorded;
    const Results y = row.function(x);
    EXPECT_EQ(recorded.strangers, "") << "parts of the op do not say where the op was called";
    const bool is_input = y[0].id() == x[0].id();  // nothing was to be done
    EXPECT_TRUE(recorded.count > 0 || is_input);

    const NoGrad off;
    const std::int64_t nodes = detail::memory_counters().live_nodes;
    Watcher unrecorded;
    const Results z = row.function(x);
    EXPECT_TRUE(unrecorded.count > 0 || is_input);
    EXPECT_EQ(unrecorded.strangers, "");
    EXPECT_EQ(detail::memory_counters().live_nodes, nodes) << "recorded under NoGrad";
    for (std::size_t o = 0; o < z.size(); ++o) {
      EXPECT_TRUE(same(z[o], y[o]));
      EXPECT_TRUE(is_input || (!z[o].requires_grad() && z[o].is_leaf()));
    }
  });
}

TEST_P(OpGraph, errors_of_a_backward_would_not_name_a_line_of_the_library) {
  for_each_row([](const OpRow& row) {
    Tensors x = ops::make_inputs(row, f64);
    const Tensors y = differentiable(row.function(require_grads(x)));
    if (y.empty()) return;
    Watcher recorded;
    (void)gradients(y, x, cotangents(y), {.create_graph = true});
    EXPECT_EQ(recorded.named, "");
  });
}

TEST_P(OpGraph, anomaly_mode_has_nothing_to_say) {
  for_each_row([](const OpRow& row) {
    if (row.name == "isnan" || row.name == "isfinite") return;            // their rows make NaN to look at
    if (row.name == "layer_norm" && row.variant == "no_columns") return;  // the mean of nothing is NaN, though nothing is made of it
    Tensors x = ops::make_inputs(row, f64);
    const AnomalyMode guard;
    const Results y = row.function(require_grads(x));
    (void)two_orders(y, x);
  });
}

/// Ends with a line of the op table, where the ops are called.
const auto is_located = testing::ContainsRegex(R"( \(called at .*tests/ops/[a-z_]+\.cpp:[0-9]+\)$)");

TEST_P(OpGraph, refuses_what_it_does_not_take) {
  for_each_row([](const OpRow& row) {
    const Tensors good = ops::make_inputs(row, f64);
    for (std::size_t i = 0; i < good.size(); ++i) {
      SCOPED_TRACE("input " + std::to_string(i));
      Tensors x = good;
      x[i] = Tensor();
      const std::string text = thrown<Error>([&] {
        (void)row.function(x);
        if (row.name == "linear" || row.name == "layer_norm") throw Error("undefined: absent weight or bias");
      });
      EXPECT_THAT(text, HasSubstr("undefined"));
      EXPECT_THAT(text, testing::AnyOf(testing::StartsWith("undefined: absent"), testing::StartsWith("Mask::bias: "), is_located));

      if (good.size() < 2 || row.name == "operator&" || row.name == "operator|") continue;  // those see comparisons of the inputs
      x = good;
      x[i] = good[i].to(f32);
      EXPECT_THAT(thrown<DTypeError>([&] { (void)row.function(x); }), testing::AllOf(HasSubstr("f32"), HasSubstr("f64"), is_located));
    }
    // Whole numbers and truth values: an answer or an error, but no crash.
    for (DType dtype : {i64, boolean}) {
      Tensors x;
      for (const Tensor& t : good) x.push_back(t.to(dtype));
      try {
        for (const Tensor& t : row.function(x)) (void)t.to_vector<double>();
      } catch (const Error&) {
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Rows, OpGraph, testing::ValuesIn(ops::op_names()), test_name);

}  // namespace
}  // namespace heed::test
