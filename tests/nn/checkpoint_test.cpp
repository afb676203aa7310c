#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "support.h"

// Checkpoints: a run that is stopped and resumed is the run that was not, and no moment leaves half a file.

namespace heed {
namespace {

using test::message_of;
using test::TemporaryFile;
using test::Tied;
using test::values;

/// With dropout, so that the random numbers matter too, and a tied tensor.
struct Model {
  nn::Embedding table{11, 8};
  test::MultiHeadSelfAttention attention{8, 2};
  nn::Dropout drop{0.2};
  nn::Linear head{8, 11, false};
  Model() { head.weight = table.weight; }
  Tensor operator()(const Tensor& ids) const { return head(drop(attention(table(ids), Mask::causal()).output)); }
  void visit(nn::Visitor& v) { v("table", table), v("attention", attention), v("drop", drop), v("head", head); }
};

struct Training {
  Model model;
  nn::AdamW optimizer{nn::named_parameters(model), {.lr = 1e-2}};
  nn::TokenDataset data{[] {
                          std::vector<Index> ids;
                          for (Index i = 0; i < 200; ++i) ids.push_back(i * i % 11);
                          return ids;
                        }(),
                        {.seed = 4}};
  std::vector<double> losses;

  void train(Index from, Index to) {
    for (Index step = from; step < to; ++step) {
      const auto [x, y] = data.batch(step, 3, 6);
      optimizer.zero_grad();
      const Tensor loss = cross_entropy(reshape(model(x), {-1, 11}), reshape(y, {-1}));
      loss.backward();
      optimizer.step();
      losses.push_back(loss.item<double>());
    }
  }
};

TEST(Checkpoint, ResumedIsTheRunThatWasNotStoppedBitForBit) {
  manual_seed(1);
  Training whole;
  whole.train(0, 12);
  const RngState end = rng_state();

  const TemporaryFile file;
  manual_seed(1);
  Training first;
  first.train(0, 5);
  nn::save_checkpoint(file.path(), nn::checkpoint_of(first.model, first.optimizer, 5, {{"n_embd", "8"}}));

  manual_seed(77);  // another process has other weights and random numbers
  Training second;
  const nn::Checkpoint c = nn::load_checkpoint(file.path());
  EXPECT_EQ(c.step, 5);
  EXPECT_EQ(c.strings, (std::map<std::string, std::string>{{"n_embd", "8"}}));
  EXPECT_EQ(c.model.at("head.weight").id(), c.model.at("table.weight").id());
  EXPECT_TRUE(c.optimizer.count("table.weight.exp_avg"));
  nn::restore(c, second.model, second.optimizer);
  second.train(c.step, 12);

  EXPECT_EQ(second.losses, std::vector<double>(whole.losses.begin() + 5, whole.losses.end()));
  EXPECT_EQ(rng_state(), end);
  const auto want = nn::state_dict(whole.model), got = nn::state_dict(second.model);
  for (const auto& [name, t] : want) EXPECT_EQ(values(got.at(name)), values(t)) << name;
  const auto moments = whole.optimizer.state_dict(), resumed = second.optimizer.state_dict();
  ASSERT_EQ(moments.size(), resumed.size());
  for (const auto& [name, t] : moments) EXPECT_EQ(values(resumed.at(name)), values(t)) << name;
}

/// Everything that a real run has: dropout in every layer, a batch in two parts, clipping, a schedule.
struct FullTraining {
  nn::GPT model{{.vocab_size = 11, .block_size = 6, .n_layer = 2, .n_head = 2, .n_embd = 8, .dropout = .3}};
  nn::AdamW optimizer{nn::decay_groups(model, {.lr = 1e-2, .weight_decay = .1})};
  nn::TokenDataset data = Training().data;
  std::vector<double> numbers;  ///< losses and norms

  void train(Index from, Index to) {
    const nn::WarmupCosine lr{.peak = 1e-2, .warmup_steps = 4, .total_steps = 20, .floor = 1e-3};
    for (Index step = from; step < to; ++step) {
      const auto [x, y] = data.batch(step, 4, 6);
      optimizer.zero_grad();
      for (Index part = 0; part < 2; ++part) {
        const Tensor logits = model(slice(x, 0, 2 * part, 2 * part + 2));
        const Tensor loss = cross_entropy(reshape(logits, {-1, 11}), reshape(slice(y, 0, 2 * part, 2 * part + 2), {-1})) / 2;
        loss.backward();
        numbers.push_back(loss.item<double>());
      }
      numbers.push_back(nn::clip_grad_norm(nn::parameters(model), .5));
      optimizer.set_lr(lr(step));
      optimizer.step();
    }
  }
};

TEST(Checkpoint, OfARunWithEverythingOnResumesFromAnyStep) {
  manual_seed(1);
  FullTraining whole;
  whole.train(0, 20);
  const RngState end = rng_state();
  for (const Index stop : {0, 1, 4, 5, 13, 19}) {
    SCOPED_TRACE(stop);
    const TemporaryFile file;
    {
      manual_seed(1);
      FullTraining first;
      first.train(0, stop);
      nn::save_checkpoint(file.path(), nn::checkpoint_of(first.model, first.optimizer, stop));
    }
    manual_seed(50);
    FullTraining second;
    const nn::Checkpoint c = nn::load_checkpoint(file.path());
    nn::restore(c, second.model, second.optimizer);
    second.train(c.step, 20);
    EXPECT_EQ(second.numbers, std::vector<double>(whole.numbers.begin() + 3 * stop, whole.numbers.end()));
    EXPECT_EQ(rng_state(), end);
    for (const auto& [name, t] : nn::state_dict(whole.model)) EXPECT_EQ(values(nn::state_dict(second.model).at(name)), values(t)) << name;
    for (const auto& [name, t] : whole.optimizer.state_dict()) EXPECT_EQ(values(second.optimizer.state_dict().at(name)), values(t)) << name;
  }
}

TEST(Checkpoint, BeforeTheFirstStepAndWithMomentum) {
  Tied m, other;
  nn::SGD sgd(nn::named_parameters(m), {.momentum = 0.9}), again(nn::named_parameters(other), {.momentum = 0.9});
  const TemporaryFile file;
  nn::save_checkpoint(file.path(), nn::checkpoint_of(m, sgd, 0));
  nn::restore(nn::load_checkpoint(file.path()), other, again);
  EXPECT_EQ(values(other.wte.weight), values(m.wte.weight));
  EXPECT_TRUE(again.state_dict().empty());
  sum(m(tensor({1, 2}, i64))).backward();
  sgd.step();
  nn::save_checkpoint(file.path(), nn::checkpoint_of(m, sgd, 1));
  nn::restore(nn::load_checkpoint(file.path()), other, again);
  EXPECT_EQ(values(again.state_dict().at("wte.weight.momentum_buffer")), values(sgd.state_dict().at("wte.weight.momentum_buffer")));
}

TEST(Checkpoint, OfAnotherModelChangesNothing) {
  Tied m;
  nn::AdamW adam(nn::named_parameters(m));
  sum(m(tensor({1, 2}, i64))).backward();
  adam.step();
  nn::Checkpoint c = nn::checkpoint_of(m, adam, 1);
  c.optimizer["wte.weight.step"] = full({}, 9, i64);
  c.random = {5, 6};
  c.model = {{"wte.weight", zeros({5, 4})}, {"other", ones({2})}};
  const auto before = values(m.wte.weight);
  const RngState random = rng_state();
  const std::string text = message_of<Error>([&] { nn::restore(c, m, adam); });
  EXPECT_NE(text.find("mismatched  wte.weight"), std::string::npos) << text;
  EXPECT_NE(text.find("unexpected  other"), std::string::npos) << text;
  EXPECT_EQ(values(m.wte.weight), before);
  EXPECT_EQ(adam.state_dict().at("wte.weight.step").item<Index>(), 1);
  EXPECT_EQ(rng_state(), random);

  c = nn::checkpoint_of(m, adam, 1);
  c.optimizer.erase("wte.weight.exp_avg");
  EXPECT_NE(message_of<Error>([&] { nn::restore(c, m, adam); }).find("missing     wte.weight.exp_avg"), std::string::npos);
}

TEST(Checkpoint, ReadWhileAnotherTakesItsPlaceIsOneOfTheTwo) {
  const TemporaryFile file, one, two, next;
  nn::save_checkpoint(one.path(), {.model = {{"w", full({1}, 1)}}, .step = 1});
  nn::save_checkpoint(two.path(), {.model = {{"w", full({1}, 2)}}, .step = 2});
  std::filesystem::create_hard_link(one.path(), file.path());
  std::jthread writer([&](std::stop_token stop) {
    for (int i = 0; !stop.stop_requested(); ++i) {
      std::filesystem::create_hard_link((i % 2 ? one : two).path(), next.path());
      std::filesystem::rename(next.path(), file.path());
    }
  });
  Index seen[3] = {};
  for (int i = 0; i < 2000 || seen[1] == 0 || seen[2] == 0; ++i) {
    const nn::Checkpoint c = nn::load_checkpoint(file.path());
    ASSERT_EQ(c.model.at("w").item<Index>(), c.step);
    ++seen[c.step];
  }
}

TEST(Checkpoint, RefusesWhatItCannotTellApart) {
  const TemporaryFile file;
  EXPECT_THROW(nn::save_checkpoint(file.path(), {.model = {{"optimizer.lr", ones({1})}}}), Error);
  EXPECT_THROW(nn::save_checkpoint(file.path(), {.strings = {{"heed.step", "1"}}}), Error);
  EXPECT_THROW(nn::save_checkpoint(file.path(), {.step = -1}), Error);
  EXPECT_FALSE(std::filesystem::exists(file.path()));

  const auto refused = [&](std::map<std::string, std::string> metadata) {
    save_safetensors(file.path(), {{"w", ones({1})}}, metadata);
    return message_of<IoError>([&] { nn::load_checkpoint(file.path()); });
  };
  std::map<std::string, std::string> good{
      {"heed.checkpoint", "1"}, {"heed.step", "3"}, {"heed.random.seed", "18446744073709551615"}, {"heed.random.offset", "0"}};
  EXPECT_EQ(refused(good), "");
  EXPECT_NE(refused({}).find("not a checkpoint"), std::string::npos);
  for (const auto& [key, text] : good) {
    auto bad = good;
    for (const char* value : {"", "-1", "1x", " 1", "1.5", "99999999999999999999999"})
      EXPECT_NE((bad[key] = value, refused(bad)), "") << key << value;
    bad.erase(key);
    EXPECT_NE(refused(bad).find(key), std::string::npos);
  }
  good["heed.checkpoint"] = "2";
  EXPECT_NE(refused(good).find("version 2"), std::string::npos);
  std::ofstream(file.path(), std::ios::trunc) << "{}";
  EXPECT_THROW(nn::load_checkpoint(file.path()), IoError);
}

TEST(Checkpoint, AKillAtAnyMomentLeavesTheLastWholeOne) {
  const test::TemporaryFolder temporary;
  const std::filesystem::path& folder = temporary.path();
  const std::filesystem::path path = folder / "model.safetensors";
  const test::Threads one(1);  // a child of a process with threads has none of them
  const auto state = [](Index step) {
    const double v = static_cast<double>(step);
    return nn::Checkpoint{{{"a", full({300, 100}, v)}, {"b", full({77}, v)}}, {{"a.exp_avg", full({300, 100}, -v)}}, step, {1, 2}, {}};
  };
  nn::save_checkpoint(path, state(0));
  Index last = 0;
  for (int round = 0; round < 12; ++round) {
    // The child tells that it has saved once; then it is killed in the middle of whatever it does.
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::close(pipe[0]);
      try {
        for (Index step = last + 1;; ++step) {
          nn::save_checkpoint(path, state(step));
          if (::write(pipe[1], "x", 1) != 1) ::_exit(1);
        }
      } catch (...) {
        ::_exit(1);
      }
    }
    ::close(pipe[1]);
    char saved = 0;
    EXPECT_EQ(::read(pipe[0], &saved, 1), 1);
    std::this_thread::sleep_for(std::chrono::microseconds(1371 * round));
    ::kill(child, SIGKILL);
    ::close(pipe[0]);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    const nn::Checkpoint c = nn::load_checkpoint(path);
    EXPECT_GT(c.step, last);
    for (const auto* tensors : {&c.model, &c.optimizer})
      for (const auto& [name, t] : *tensors)
        for (double v : values(t)) ASSERT_EQ(std::fabs(v), static_cast<double>(c.step)) << name;
    last = c.step;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path() != path) std::filesystem::remove(entry.path());  // half of one
  }
}

}  // namespace
}  // namespace heed
