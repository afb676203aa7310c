#include <limits>

#include "support.h"

// Steps against PyTorch and against hand-computed cases; state; what is refused.

namespace heed {
namespace {

using test::Golden;
using test::message_of;
using test::near;
using test::values;
using State = std::map<std::string, Tensor>;

/// Gives `p` the gradient `g`, in place of the one it had.
void set_grad(Tensor& p, const Tensor& g) {
  p.zero_grad();
  sum(p * g).backward();
}

Tensor parameter(std::vector<double> v, DType dtype = f64) {
  const Index n = static_cast<Index>(v.size());
  return from_vector(v, {n}).to(dtype).requires_grad_();
}

/// One step for each gradient; p after each.
std::vector<double> path(nn::Optimizer& opt, Tensor p, const std::vector<double>& grads) {
  std::vector<double> out;
  for (double g : grads) {
    set_grad(p, full(p.shape(), g, p.dtype()));
    opt.step();
    out.push_back(values(p)[0]);
  }
  return out;
}

void expect_values(const std::vector<double>& got, const std::vector<double>& want, double tol = 1e-8) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], tol) << "step " << i + 1;
}

template <class Optimizer, class Options>
void expect_golden(const Golden& golden, const Options& options) {
  for (DType dtype : {f64, f32}) {
    const double tol = dtype == f64 ? 1e-12 : test::tolerance(dtype);
    Tensor p = golden.get("start", dtype).clone().requires_grad_();
    // A view beside it, whose rows are not contiguous, and one among other elements.
    Tensor base = zeros({5, 2}, dtype);
    select(base, 1, 1).copy_(p.detach());
    Tensor view = select(base, 1, 1).requires_grad_();
    Optimizer opt({p, view}, options);
    for (Index i = 0; i < 8; ++i) {
      set_grad(p, golden.get("grads", dtype)[i]);
      set_grad(view, golden.get("grads", dtype)[i]);
      opt.step();
      EXPECT_TRUE(near(p, golden.get("path")[i], tol)) << dtype << " after step " << i + 1;
    }
    EXPECT_EQ(values(view), values(p)) << "a view is stepped in place";
    EXPECT_EQ(values(select(base, 1, 0)), std::vector<double>(5, 0.0));
  }
}

TEST(Sgd, MatchesPyTorch) {
  for (const char* name : {"optim_sgd", "optim_sgd_momentum_decay", "optim_sgd_nesterov"}) {
    SCOPED_TRACE(name);
    const Golden golden(name);
    expect_golden<nn::SGD>(golden, nn::SGDOptions{.lr = golden.number("lr"),
                                                  .momentum = golden.number("momentum"),
                                                  .weight_decay = golden.number("weight_decay"),
                                                  .nesterov = golden.text("nesterov") == "True"});
  }
}

TEST(Adam, MatchesPyTorch) {
  const Golden adam("optim_adam"), adamw("optim_adamw");
  expect_golden<nn::Adam>(adam, nn::AdamOptions{.lr = adam.number("lr"), .weight_decay = adam.number("weight_decay")});
  expect_golden<nn::AdamW>(adamw, nn::AdamWOptions{.lr = adamw.number("lr"), .weight_decay = adamw.number("weight_decay")});
}

TEST(Adam, DecaysTheParameterAndNotTheGradientWhenDecoupled) {
  Tensor p = parameter({2}), q = parameter({2}), r = parameter({2});
  nn::AdamW decoupled({p}, {.lr = 0.1, .weight_decay = 0.1});
  expect_values(path(decoupled, p, {0.5, 0.5}), {1.880000002, 1.76120000398}, 1e-11);
  nn::Adam in_gradient({q}, {.lr = 0.1, .weight_decay = 0.1});
  expect_values(path(in_gradient, q, {0.5, 0.5}), {1.90000000143, 1.80004009436}, 1e-11);
  nn::AdamW still({r}, {.lr = 0.1, .weight_decay = 0.1});
  expect_values(path(still, r, {0, 0}), {1.98, 1.9602}, 1e-12);
}

TEST(Sgd, DecaysWithoutMomentum) {
  Tensor p = parameter({1}), q = parameter({1});
  nn::SGD decay({p}, {.lr = 0.1, .weight_decay = 0.5});
  expect_values(path(decay, p, {0}), {0.95}, 1e-15);
  nn::SGD momentum({q}, {.lr = 0.1, .momentum = 0.9});
  expect_values(path(momentum, q, {1, 1, 1}), {0.9, 0.71, 0.439}, 1e-14);
}

TEST(Sgd, IsTheStepThatTheReadmeWritesByHand) {
  Tensor W = parameter({1, -2}), by_sgd = parameter({1, -2});
  nn::SGD sgd({by_sgd}, {.lr = 0.1});
  const double lr = 0.1;
  for (int step = 0; step < 3; ++step) {
    sum(square(W)).backward();
    {
      NoGrad off;
      W.copy_(W - lr * W.grad());
    }
    W.zero_grad();
    sgd.zero_grad();
    sum(square(by_sgd)).backward();
    sgd.step();
  }
  EXPECT_TRUE(W.requires_grad());
  expect_values(values(W), values(by_sgd), 1e-15);
  expect_values(values(W), {0.512, -1.024}, 1e-15);
}

/// Steps 1 to 3, the state through a file into a new optimizer, step 4 with both: equal bit for bit.
template <class Optimizer, class Options>
std::vector<double> resumed(const Options& options) {
  Tensor p = parameter({1}).named("p");
  Optimizer opt({{"p", p}}, options);
  std::vector<double> out = path(opt, p, {1, -2, 0.5});
  const test::TemporaryFile file;
  save_safetensors(file.path(), opt.state_dict());
  Tensor q = p.detach().clone().requires_grad_();
  Optimizer fresh({{"p", q}}, options);
  fresh.load_state_dict(load_safetensors(file.path()));
  out.push_back(path(opt, p, {3})[0]);
  EXPECT_EQ(path(fresh, q, {3})[0], out.back());
  return out;
}

TEST(State, GoesOnWhereItStopped) {
  expect_values(resumed<nn::Adam>(nn::AdamOptions{.lr = 0.1}), {0.900000001, 0.93661035, 0.95027942, 0.91086943});
  expect_values(resumed<nn::AdamW>(nn::AdamWOptions{.lr = 0.1, .weight_decay = 0.2}), {0.880000001, 0.89901035, 0.89469921, 0.83739524});
  resumed<nn::SGD>(nn::SGDOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true});
  resumed<nn::SGD>(nn::SGDOptions{.lr = 0.1});
}

std::vector<std::string> keys(const State& state) {
  std::vector<std::string> out;
  for (const auto& item : state) out.push_back(item.first);
  return out;
}
using Keys = std::vector<std::string>;

TEST(State, IsNamedAfterTheParameters) {
  Tensor a = parameter({1, 2}), b = parameter({3}), idle = parameter({4});
  for (Tensor* p : {&a, &b}) set_grad(*p, ones(p->shape(), f64));
  nn::AdamW adam({{"a", a}, {"b", b}, {"idle", idle}});
  EXPECT_EQ(keys(adam.state_dict()), Keys{});
  adam.step();
  EXPECT_EQ(keys(adam.state_dict()), (Keys{"a.exp_avg", "a.exp_avg_sq", "a.step", "b.exp_avg", "b.exp_avg_sq", "b.step"}));
  EXPECT_EQ(adam.state_dict().at("a.step").item<Index>(), 1);
  EXPECT_EQ(adam.state_dict().at("a.exp_avg").shape(), (Dims{2}));
  nn::SGD momentum({a, idle, b}, {.momentum = 0.5}), plain({a});
  momentum.step(), plain.step();
  EXPECT_EQ(keys(momentum.state_dict()), (Keys{"0.momentum_buffer", "2.momentum_buffer"}));
  EXPECT_EQ(keys(plain.state_dict()), Keys{});
  EXPECT_EQ(values(idle), std::vector<double>{4});
}

TEST(State, IsACopy) {
  Tensor p = parameter({1});
  nn::SGD opt({p}, {.lr = 1, .momentum = 1});
  path(opt, p, {1});
  const State state = opt.state_dict();
  path(opt, p, {1});
  EXPECT_EQ(state.at("0.momentum_buffer").item<double>(), 1);
  opt.load_state_dict(state);
  path(opt, p, {1});
  EXPECT_EQ(state.at("0.momentum_buffer").item<double>(), 1);
  EXPECT_EQ(opt.state_dict().at("0.momentum_buffer").item<double>(), 2);
  opt.load_state_dict({});
  EXPECT_EQ(keys(opt.state_dict()), Keys{}) << "the state of an optimizer that has not stepped";
}

/// Two optimizers at the same time, and a state that goes to parameters listed in another order.
TEST(State, GoesByNameAndNotByPosition) {
  const auto made = [] { return std::pair{parameter({1, 2}), parameter({3, 4})}; };
  auto [a, b] = made();
  auto [c, d] = made();
  nn::AdamW first({{"a", a}, {"b", b}}, {.lr = .1}), second({{"b", d}, {"a", c}}, {.lr = .1});
  const auto step = [](nn::AdamW& opt, Tensor& x, Tensor& y, double gx, double gy) {
    set_grad(x, full(x.shape(), gx, f64)), set_grad(y, full(y.shape(), gy, f64));
    opt.step();
  };
  step(first, a, b, 1, -5), step(first, a, b, 2, 7);
  step(second, c, d, 9, 9);  // another history, in the same process
  EXPECT_EQ(first.state_dict().at("a.step").item<Index>(), 2);
  EXPECT_EQ(second.state_dict().at("a.step").item<Index>(), 1);
  second.load_state_dict(first.state_dict());
  for (const auto& [key, t] : first.state_dict()) EXPECT_EQ(values(second.state_dict().at(key)), values(t)) << key;
  {
    const NoGrad off;
    c.copy_(a), d.copy_(b);
  }
  step(first, a, b, -1, 3), step(second, c, d, -1, 3);
  EXPECT_EQ(values(c), values(a));
  EXPECT_EQ(values(d), values(b));
  EXPECT_NE(values(first.state_dict().at("a.exp_avg")), values(first.state_dict().at("b.exp_avg")));
}

TEST(State, CountsStepsExactlyOrRefuses) {
  Tensor p = parameter({1});
  nn::Adam opt({{"p", p}});
  set_grad(p, ones({1}, f64));
  opt.step();
  State state = opt.state_dict();
  constexpr Index odd = (Index{1} << 53) - 1;
  state["p.step"] = full({}, odd, i64);
  opt.load_state_dict(state);
  EXPECT_EQ(opt.state_dict().at("p.step").item<Index>(), odd);
  state["p.step"] = tensor(3.0, f32);  // as PyTorch stores it
  opt.load_state_dict(state);
  EXPECT_EQ(opt.state_dict().at("p.step").item<Index>(), 3);
  for (const Tensor& steps :
       {tensor(-1, i64), tensor((Index{1} << 53) + 1, i64), tensor(std::numeric_limits<Index>::max(), i64), tensor(NAN), tensor(1e300, f64)}) {
    state["p.step"] = steps;
    EXPECT_THROW(opt.load_state_dict(state), Error) << steps;
  }
}

TEST(State, OfOtherParametersIsRefusedBeforeAnythingChanges) {
  Tensor a = parameter({1, 2}), b = parameter({3});
  for (Tensor* p : {&a, &b}) set_grad(*p, ones(p->shape(), f64));
  nn::Adam opt({{"a", a}, {"b", b}});
  opt.step();
  const State good = opt.state_dict();
  State bad = good;
  bad["a.exp_avg"] = zeros({3}, f64);
  bad["b.step"] = tensor(1.5, f64);
  bad.erase("b.exp_avg");
  bad["c.exp_avg"] = zeros({1}, f64);
  EXPECT_EQ(message_of<Error>([&] { opt.load_state_dict(bad); }),
            "Adam: load_state_dict: the state is not of these parameters:\n"
            "  mismatched  a.exp_avg  f64 (2,) in the optimizer, f64 (3,) given\n"
            "  mismatched  b.step     a count of steps in the optimizer, 1.5 given\n"
            "  missing     b.exp_avg  of a parameter of shape (1,)\n"
            "  unexpected  c.exp_avg  f64 (1,)");
  const State after = opt.state_dict();
  ASSERT_EQ(keys(after), keys(good));
  for (const auto& [name, t] : good) EXPECT_EQ(values(t), values(after.at(name))) << name;
  for (const Tensor& t : {Tensor(), zeros({2}, i64)}) {
    bad = good;
    bad["a.exp_avg"] = t;
    EXPECT_THROW(opt.load_state_dict(bad), Error);
  }
  for (double steps : {-1.0, std::nan(""), 1e300}) {
    bad = good;
    bad["a.step"] = full({}, steps, f64);
    EXPECT_THROW(opt.load_state_dict(bad), Error) << steps;
  }
  nn::SGD plain({{"a", a}, {"b", b}});
  EXPECT_THROW(plain.load_state_dict({{"a.momentum_buffer", zeros({2}, f64)}}), Error);
}

TEST(Step, MovesAParameterGivenTwiceOnce) {
  Tensor p = parameter({1});
  Tensor same = p;
  nn::SGD opt({p, same, p}, {.lr = 0.1});
  expect_values(path(opt, p, {1}), {0.9}, 1e-15);
  nn::SGD groups({{{p}, {.lr = 0.1}}, {{same}, {.lr = 100}}});
  expect_values(path(groups, p, {1}), {0.8}, 1e-15);
  nn::SGD tied(nn::parameters(test::Tied()), {.lr = 0.1});
  test::Tied m;
  nn::AdamW named(nn::named_parameters(m));
  sum(m(tensor({1}, i64))).backward();
  named.step();
  EXPECT_EQ(keys(named.state_dict()), (Keys{"wte.weight.exp_avg", "wte.weight.exp_avg_sq", "wte.weight.step"}));
}

TEST(Step, LeavesWhatHasNoGradientUntouched) {
  Tensor a = parameter({1}), b = parameter({2});
  nn::AdamW opt({a, b}, {.lr = 0.1, .weight_decay = 0.5});
  path(opt, a, {1, 1});
  EXPECT_EQ(values(b), std::vector<double>{2}) << "no decay either";
  opt.zero_grad();
  EXPECT_FALSE(a.grad().defined());
  const std::vector<double> before = values(a);
  opt.step();
  EXPECT_EQ(values(a), before);
}

TEST(Step, TakesOptionsByGroup) {
  Tensor a = parameter({1}), b = parameter({1}), c = parameter({1});
  nn::SGD opt({{{a, b}, {.lr = 0.1, .weight_decay = 1}}, {{{"c", c}}, {.lr = 0.01, .momentum = 0.9}}});
  for (Tensor* p : {&a, &b, &c}) set_grad(*p, ones({1}, f64));
  opt.step();
  expect_values(values(a), {0.8}, 1e-15);
  expect_values(values(b), {0.8}, 1e-15);
  expect_values(values(c), {0.99}, 1e-15);
  EXPECT_EQ(keys(opt.state_dict()), Keys{"c.momentum_buffer"});
  EXPECT_EQ(opt.lr(0), 0.1);
  EXPECT_EQ(opt.lr(1), 0.01);
  opt.set_lr(0.5, 1);
  EXPECT_EQ(opt.lr(0), 0.1);
  EXPECT_EQ(opt.lr(1), 0.5);
  opt.set_lr(0.25);
  EXPECT_EQ(opt.lr(0) + opt.lr(1), 0.5);
  EXPECT_THROW(opt.lr(2), IndexError);
  EXPECT_THROW(opt.set_lr(-1), Error);
  opt.step();
  expect_values(values(a), {0.8 - 0.25 * 1.8}, 1e-15);
}

TEST(Step, GoesOnAfterAMove) {
  Tensor p = parameter({1});
  nn::SGD opt({p}, {.lr = 0.1, .momentum = 0.9});
  path(opt, p, {1});
  nn::SGD moved = std::move(opt);
  expect_values(path(moved, p, {1}), {0.71}, 1e-15);
  Tensor q = parameter({1});
  moved = nn::SGD({q}, {.lr = 1});
  expect_values(path(moved, q, {1}), {0}, 1e-15);
}

TEST(Step, ConvertsItsStateWithTheParameters) {
  nn::Linear m(3, 2);
  nn::AdamW opt(nn::named_parameters(m), {.lr = 0.1});
  const auto train = [&](DType dtype) {
    opt.zero_grad();
    sum(square(m(ones({1, 3}, dtype)))).backward();
    opt.step();
  };
  train(f32);
  const State before = opt.state_dict();
  nn::to(m, f64);
  opt.step();  // the gradient was converted too
  EXPECT_EQ(opt.state_dict().at("weight.exp_avg").dtype(), f64);
  EXPECT_EQ(opt.state_dict().at("weight.step").item<Index>(), 2);
  const double expected = 1.9 * values(before.at("weight.exp_avg"))[0];
  EXPECT_NEAR(values(opt.state_dict().at("weight.exp_avg"))[0], expected, 1e-6 * std::fabs(expected));
  train(f64);
  nn::Linear other = nn::clone(m);
  nn::AdamW reloaded(nn::named_parameters(other));
  reloaded.load_state_dict(before);
  EXPECT_EQ(reloaded.state_dict().at("weight.exp_avg").dtype(), f64) << "state is taken over in the parameter's dtype";
}

TEST(Step, IsSeenByGraphsRecordedBefore) {
  nn::Linear m(2, 2);
  Tensor x = randn({1, 2}).requires_grad_();
  const Tensor first = sum(square(m(x)));
  first.backward({}, {.retain_graph = true});
  nn::SGD opt(nn::parameters(m));
  opt.step();
  EXPECT_NE(message_of<GradError>([&] { first.backward(); }).find("changed in place"), std::string::npos);
}

TEST(Step, TakesEmptyTensors) {
  Tensor p = zeros({0, 3}).requires_grad_();
  sum(p).backward();
  nn::AdamW opt({p});
  opt.step();
  EXPECT_EQ(opt.state_dict().at("0.exp_avg").shape(), (Dims{0, 3}));
}

TEST(Refused, ParametersThatCannotBeStepped) {
  Tensor p = parameter({1, 2});
  EXPECT_THROW(nn::SGD(std::vector<Tensor>{}), Error);
  EXPECT_THROW(nn::SGD({Tensor()}), Error);
  EXPECT_THROW(nn::SGD({zeros({2}, i64)}), DTypeError);
  EXPECT_NE(message_of<GradError>([&] { nn::SGD({{"doubled", p * 2}}); }).find("doubled"), std::string::npos);
  EXPECT_THROW(nn::SGD({expand(zeros({1}), {4})}), ShapeError);
  EXPECT_THROW(nn::SGD({{"p", p}, {"p", parameter({1})}}), Error);
}

TEST(Refused, OptionsThatMakeNoSense) {
  Tensor p = parameter({1});
  const double nan = std::nan("");
  EXPECT_NE(message_of<Error>([&] { nn::SGD({p}, {.lr = -1}); }).find("lr"), std::string::npos);
  EXPECT_THROW(nn::SGD({p}, {.lr = nan}), Error);
  EXPECT_THROW(nn::SGD({p}, {.momentum = -0.1}), Error);
  EXPECT_THROW(nn::SGD({p}, {.weight_decay = -0.1}), Error);
  EXPECT_NE(message_of<Error>([&] { nn::SGD({p}, {.nesterov = true}); }).find("nesterov"), std::string::npos);
  EXPECT_THROW(nn::Adam({p}, {.lr = -1}), Error);
  EXPECT_THROW(nn::Adam({p}, {.betas = {1.0, 0.9}}), Error);
  EXPECT_THROW(nn::Adam({p}, {.betas = {0.9, -0.1}}), Error);
  EXPECT_THROW(nn::Adam({p}, {.betas = {nan, 0.9}}), Error);
  EXPECT_THROW(nn::AdamW({p}, {.eps = -1e-8}), Error);
  EXPECT_THROW(nn::AdamW({p}, {.weight_decay = nan}), Error);
}

TEST(Defaults, ArePyTorchs) {
  const nn::SGDOptions sgd;
  const nn::AdamOptions adam;
  const nn::AdamWOptions adamw;
  EXPECT_EQ(sgd.lr, 1e-3);
  EXPECT_TRUE(sgd.momentum == 0 && sgd.weight_decay == 0 && !sgd.nesterov);
  EXPECT_TRUE(adam.lr == 1e-3 && adam.betas == std::pair(0.9, 0.999) && adam.eps == 1e-8 && adam.weight_decay == 0);
  EXPECT_TRUE(adamw.lr == 1e-3 && adamw.betas == adam.betas && adamw.eps == 1e-8 && adamw.weight_decay == 1e-2);
}

}  // namespace
}  // namespace heed
