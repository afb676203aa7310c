#include "support.h"

// What `visit` lists, and what the functions over modules do to it.

namespace heed {
namespace {

using test::listed;
using test::message_of;
using test::Tied;
using test::values;
using Lines = std::vector<std::string>;

TEST(Names, OfEveryLayer) {
  EXPECT_EQ(listed(nn::Linear(2, 3)), (Lines{"weight (3, 2)", "bias (3,)"}));
  EXPECT_EQ(listed(nn::Linear(2, 3, false)), (Lines{"weight (3, 2)"}));
  EXPECT_EQ(listed(nn::SingleHeadSelfAttention(6, 4)), (Lines{"W_q (6, 4)", "W_k (6, 4)", "W_v (6, 4)"}));
  EXPECT_EQ(listed(nn::Embedding(7, 5)), (Lines{"weight (7, 5)"}));
  EXPECT_EQ(listed(nn::LayerNorm(5)), (Lines{"weight (5,)", "bias (5,)"}));
  EXPECT_EQ(listed(nn::LayerNorm(Dims{2, 5})), (Lines{"weight (2, 5)", "bias (2, 5)"}));
  EXPECT_EQ(listed(nn::Dropout(0.1)), Lines{});
  EXPECT_EQ(listed(nn::Sequential(nn::Linear(2, 3), relu, nn::Linear(3, 1, false))), (Lines{"0.weight (3, 2)", "0.bias (3,)", "2.weight (1, 3)"}));
  EXPECT_EQ(listed(test::MultiHeadSelfAttention(8, 2)), (Lines{"qkv.weight (24, 8)", "qkv.bias (24,)", "proj.weight (8, 8)", "proj.bias (8,)"}));
}

/// All of a layer's parameters lack a gradient before a backward and none after.
template <class M, class F>
void expect_reached(M m, F output) {
  Lines names;
  for (const auto& named : nn::named_parameters(m)) names.push_back(named.first);
  EXPECT_EQ(nn::missing_grads(m), names);
  sum(output(m)).backward();
  EXPECT_EQ(nn::missing_grads(m), Lines{});
  nn::zero_grad(m);
  EXPECT_EQ(nn::missing_grads(m), names);
}

TEST(MissingGrads, OfEveryLayer) {
  const Tensor x = randn({3, 4, 6});
  expect_reached(nn::Linear(6, 3), [&](auto& m) { return m(x); });
  expect_reached(nn::SingleHeadSelfAttention(6, 4), [&](auto& m) { return m(x).output; });
  expect_reached(nn::Embedding(7, 5), [&](auto& m) { return m(tensor({1, 2}, i64)); });
  expect_reached(nn::LayerNorm(6), [&](auto& m) { return m(x); });
  expect_reached(nn::Sequential(nn::Linear(6, 3), relu, nn::Linear(3, 1)), [&](auto& m) { return m(x); });
  expect_reached(test::MultiHeadSelfAttention(6, 2), [&](auto& m) { return m(x, Mask::causal()).output; });
}

TEST(MissingGrads, NameWhatTheLossDoesNotDependOn) {
  test::MultiHeadSelfAttention m(6, 2);
  sum(m.qkv(randn({2, 6}))).backward();
  EXPECT_EQ(nn::missing_grads(m), (Lines{"proj.weight", "proj.bias"}));
  m.proj.weight.requires_grad_(false);
  EXPECT_EQ(nn::missing_grads(m), Lines{"proj.bias"}) << "a frozen parameter wants no gradient";
}

/// One of each kind of member.
struct Everything {
  Tensor scale = ones({2}).requires_grad_(), absent;
  Tensor table = arange(0, 3, 1, i64), running = zeros({2});
  std::vector<nn::Linear> blocks;
  std::array<nn::LayerNorm, 2> norms = {nn::LayerNorm(2), nn::LayerNorm(2)};
  std::optional<nn::Dropout> drop;
  std::optional<nn::Linear> gate;
  std::vector<Tensor> steps = {zeros(1).requires_grad_(), zeros(2).requires_grad_()};
  bool training = true;

  Tensor operator()(const Tensor& x) const { return x * scale; }
  void visit(nn::Visitor& v) {
    v("scale", scale), v("absent", absent), v("training", training);
    v.buffer("table", table), v.buffer("running", running);
    v("blocks", blocks), v("norms", norms), v("drop", drop), v("gate", gate), v("steps", steps);
  }
};

TEST(Visitor, NumbersMembersAndSkipsWhatIsAbsent) {
  Everything m;
  m.blocks = {nn::Linear(2, 2, false), nn::Linear(2, 2)};
  const Lines parameters{"scale (2,)",        "blocks.0.weight (2, 2)", "blocks.1.weight (2, 2)", "blocks.1.bias (2,)", "norms.0.weight (2,)",
                         "norms.0.bias (2,)", "norms.1.weight (2,)",    "norms.1.bias (2,)",      "steps.0 (1,)",       "steps.1 (2,)"};
  EXPECT_EQ(listed(m), parameters);
  EXPECT_EQ(nn::num_parameters(m), 2 + 4 + 4 + 2 + 4 * 2 + 1 + 2) << "buffers are not trained";
  m.gate.emplace(2, 1, false);
  EXPECT_EQ(listed(m)[8], "gate.weight (1, 2)");
  const auto state = nn::state_dict(m);
  EXPECT_EQ(state.size(), parameters.size() + 3);
  EXPECT_TRUE(state.count("running") == 1 && state.count("table") == 1) << "buffers are state";
}

TEST(Visitor, TakesConstModules) {
  const nn::Linear m(3, 2);
  EXPECT_EQ(nn::num_parameters(m), 8);
  EXPECT_EQ(nn::parameters(m)[0].id(), m.weight.id()) << "handles, not copies";
  EXPECT_EQ(nn::clone(m).weight.shape(), (Dims{2, 3}));
}

TEST(Visitor, RefusesOneNameForTwo) {
  struct Twice {
    nn::Linear a{2, 2}, b{2, 2};
    void visit(nn::Visitor& v) { v("layer", a), v("layer", b); }
  };
  EXPECT_NE(message_of<Error>([] { nn::parameters(Twice()); }).find("layer.bias"), std::string::npos);
}

TEST(Train, SetsEveryFlagBelow) {
  Everything inner;
  inner.drop.emplace(0.5);
  nn::Sequential outer(nn::Dropout(0.1), inner, relu);
  const auto& [first, second, third] = outer.layers;
  nn::train(outer, false);
  EXPECT_FALSE(first.training || second.training || second.drop->training);
  nn::train(outer);
  EXPECT_TRUE(first.training && second.training && second.drop->training);
  EXPECT_TRUE(inner.training) << "flags are values: those of the copied module are its own";
}

TEST(Tied, CountsOnceAndShowsBothNames) {
  const Tied m;
  EXPECT_EQ(nn::num_parameters(m), 15);
  EXPECT_EQ(nn::parameters(m).size(), 1u);
  EXPECT_EQ(listed(m), Lines{"wte.weight (5, 3)"});
  const auto state = nn::state_dict(m);
  ASSERT_EQ(state.size(), 2u);
  EXPECT_EQ(state.at("wte.weight").id(), state.at("head.weight").id());
}

TEST(Tied, StaysTiedInAClone) {
  const Tied m, copy = nn::clone(m);
  EXPECT_EQ(copy.wte.weight.id(), copy.head.weight.id());
  EXPECT_NE(copy.wte.weight.id(), m.wte.weight.id());
}

TEST(Clone, OwnsWhatACopyShares) {
  nn::Linear m(2, 3);
  m.weight.named("projection");
  m.bias.requires_grad_(false);
  sum(m(ones({1, 2}))).backward();
  nn::Linear alias = m, copy = nn::clone(m);
  EXPECT_EQ(alias.weight.id(), m.weight.id());
  EXPECT_NE(copy.weight.id(), m.weight.id());
  EXPECT_EQ(values(copy.weight), values(m.weight));
  EXPECT_EQ(copy.weight.name(), "projection");
  EXPECT_TRUE(copy.weight.is_leaf() && copy.weight.requires_grad());
  EXPECT_FALSE(copy.bias.requires_grad());
  EXPECT_FALSE(copy.weight.grad().defined());
  const std::vector<double> before = values(m.weight);
  {
    NoGrad off;
    copy.weight.fill_(0);
  }
  EXPECT_EQ(values(m.weight), before);
  sum(copy(ones({1, 2}))).backward();
  EXPECT_TRUE(copy.weight.grad().defined());
}

TEST(Clone, OwnsBuffersAndChildrenInContainers) {
  Everything m;
  m.blocks = {nn::Linear(2, 2)};
  m.training = false;
  const Everything copy = nn::clone(m);
  const auto a = nn::state_dict(m), b = nn::state_dict(copy);
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, t] : a) {
    EXPECT_NE(t.ref()->storage.get(), b.at(name).ref()->storage.get()) << name;
    EXPECT_EQ(values(t), values(b.at(name))) << name;
    EXPECT_EQ(t.dtype(), b.at(name).dtype()) << name;
  }
  EXPECT_FALSE(copy.training);
}

TEST(StateDict, HandsOutAliases) {
  nn::Linear m(2, 3);
  auto state = nn::state_dict(m);
  EXPECT_FALSE(state.at("weight").requires_grad());
  state.at("weight").fill_(7);
  EXPECT_EQ(m.weight[2][1].item<float>(), 7);
}

TEST(To, KeepsTensorsAndConvertsGradients) {
  Tied m;
  const Tensor ids = tensor({1, 2}, i64);
  const std::vector<double> before = values(m.wte.weight);
  sum(m(ids)).backward();
  const std::vector<double> gradient = values(m.wte.weight.grad());
  const auto id = m.wte.weight.id();
  const Tensor handle = m.wte.weight;
  nn::to(m, f64);
  EXPECT_EQ(m.wte.weight.dtype(), f64);
  EXPECT_EQ(m.head.weight.dtype(), f64);
  EXPECT_EQ(handle.dtype(), f64) << "every handle sees it";
  EXPECT_EQ(m.wte.weight.id(), id);
  EXPECT_EQ(m.head.weight.id(), id);
  EXPECT_EQ(values(m.wte.weight), before);
  ASSERT_EQ(m.wte.weight.grad().dtype(), f64);
  EXPECT_EQ(values(m.wte.weight.grad()), gradient);
  sum(m(ids)).backward();
  for (std::size_t i = 0; i < gradient.size(); ++i) EXPECT_NEAR(values(m.wte.weight.grad())[i], 2 * gradient[i], 1e-5) << "gradients go on adding up";
  nn::to(m, f32);
  EXPECT_EQ(m.wte.weight.dtype(), f32);
  EXPECT_EQ(values(m.wte.weight), before);
}

TEST(To, LeavesOtherDtypesAlone) {
  Everything m;
  nn::to(m, f64);
  EXPECT_EQ(m.table.dtype(), i64);
  EXPECT_EQ(m.running.dtype(), f64);
  EXPECT_EQ(m.steps[1].dtype(), f64);
  EXPECT_THROW(nn::to(m, i64), DTypeError);
  EXPECT_EQ(m.running.dtype(), f64);
}

TEST(To, MakesViewsRowMajor) {
  nn::Linear m(2, 3);
  m.weight = transpose(reshape(arange(0, 6), {2, 3}), 0, 1).requires_grad_();
  nn::to(m, f64);
  EXPECT_EQ(values(m.weight), (std::vector<double>{0, 3, 1, 4, 2, 5}));
  EXPECT_TRUE(m.weight.is_contiguous());
  EXPECT_EQ(values(linear(ones({1, 2}, f64), m.weight)), (std::vector<double>{3, 5, 7}));
}

TEST(To, EndsGraphsRecordedBefore) {
  // The weights themselves were saved for backward, or a view of them.
  nn::SingleHeadSelfAttention head(2, 3);
  nn::Linear m(2, 3);
  Tensor x = randn({4, 2}).requires_grad_();
  const Tensor of_head = sum(head(x).output), of_linear = sum(m(x));
  nn::to(head, f64), nn::to(m, f64);
  const std::string saved = message_of<GradError>([&] { of_head.backward(); });
  EXPECT_NE(saved.find("changed in place"), std::string::npos) << saved;
  EXPECT_NE(message_of<GradError>([&] { of_linear.backward(); }), "");
  EXPECT_FALSE(m.weight.grad().defined() || head.W_v.grad().defined() || x.grad().defined());
}

TEST(To, RefusesWhatWasComputedBeforeAnythingChanges) {
  nn::Linear m(2, 3);
  m.bias = m.bias * 2;
  EXPECT_NE(message_of<GradError>([&] { nn::to(m, f64); }).find("bias"), std::string::npos);
  EXPECT_EQ(m.weight.dtype(), f32);
}

TEST(To, KeepsHooks) {
  nn::Linear m(2, 1, false);
  int calls = 0;
  m.weight.register_hook([&](const Tensor&) {
    ++calls;
    return Tensor();
  });
  nn::to(m, f64);
  sum(m(ones({1, 2}, f64))).backward();
  EXPECT_EQ(calls, 1);
}

TEST(Summary, ListsShapesAndTotal) {
  Tied m;
  EXPECT_EQ(nn::summary(m),
            "path         shape   dtype    parameters           bytes\n"
            "wte.weight   (5, 3)  f32              15              60\n"
            "head.weight  (5, 3)  f32              15              60  tied to wte.weight\n"
            "total                                 15              60\n");
  Everything e;
  e.scale.requires_grad_(false);
  const std::string text = nn::summary(e);
  EXPECT_NE(text.find("scale           (2,)   f32               2               8  frozen\n"), std::string::npos) << text;
  EXPECT_NE(text.find("table           (3,)   i64               3              24  buffer\n"), std::string::npos) << text;
}

TEST(Summary, AddsUpModulesOfModules) {
  struct Block {
    test::MultiHeadSelfAttention attn{4, 2};
    Tensor mask = ones({3}, i64);
    void visit(nn::Visitor& v) { v("attn", attn), v.buffer("mask", mask); }
  };
  struct Model {
    Block block;
    nn::LayerNorm norm{4};
    void visit(nn::Visitor& v) { v("block", block), v("norm", norm); }
  } m;
  EXPECT_EQ(nn::summary(m),
            "path                    shape    dtype    parameters           bytes\n"
            "block                                             80             344\n"
            "block.attn                                        80             320\n"
            "block.attn.qkv.weight   (12, 4)  f32              48             192\n"
            "block.attn.qkv.bias     (12,)    f32              12              48\n"
            "block.attn.proj.weight  (4, 4)   f32              16              64\n"
            "block.attn.proj.bias    (4,)     f32               4              16\n"
            "block.mask              (3,)     i64               3              24  buffer\n"
            "norm.weight             (4,)     f32               4              16\n"
            "norm.bias               (4,)     f32               4              16\n"
            "total                                             88             376\n");
}

}  // namespace
}  // namespace heed
